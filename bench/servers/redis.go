package servers

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"penstock/bench/contest"
)

const redisName = "redis-server, GCRA in Lua"

// script does at a redis-server what CL.THROTTLE does: key, max_burst, count per period, period in
// seconds.
const script = `
local burst, count, period = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval = period * 1000000 / count
local depth = interval * (burst + 1)
local tat = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now)
local new = tat + interval
if new - depth > now then
  local retry, reset = new - depth - now, tat - now
  return {1, burst + 1, 0, math.ceil(retry / 1000000), math.ceil(reset / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.ceil((new - now) / 1000))
local left, reset = (depth - (new - now)) / interval, new - now
return {0, burst + 1, math.floor(left), -1, math.ceil(reset / 1000000)}
`

// A unit comes back after 3.6 s, and so many may come at once that none is refused: so keys stay
// known.
const (
	redisBurst  = "1000000"
	redisCount  = "100000"
	redisPeriod = "360000"
)

// ownRedis asks penstock by the Redis protocol.
func ownRedis(p *Programs) (*running, error) {
	addrs, err := freePorts("127.0.0.1", 1)
	if err != nil {
		return nil, err
	}
	r, _, err := nodes(p, 1, "--redis", addrs[0])
	if err != nil {
		return r, err
	}
	return r, r.askAsRedis(addrs[0], func(string) []string { return []string{"CL.THROTTLE"} })
}

// redisServer asks a redis-server of its own, which writes nothing to disk.
func redisServer(p *Programs) (*running, error) {
	r, addr, err := startRedis(p)
	if err != nil {
		return r, err
	}
	return r, r.askAsRedis(addr, func(sha string) []string { return []string{"EVALSHA", sha, "1"} })
}

func startRedis(p *Programs) (*running, string, error) {
	addrs, err := freePorts("127.0.0.1", 1)
	if err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(addrs[0])
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", err
	}
	s, err := p.start(program, nil, "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no")
	if err != nil {
		return nil, "", err
	}
	return &running{servers: []*process{s}}, addrs[0], s.awaitListener(addrs[0])
}

// askAsRedis makes r ask by the Redis protocol, in pipelines of as many commands as a point has
// items. Each caller has a connection of its own. throttle begins a command that has the key and
// the terms behind it, given the script's name.
func (r *running) askAsRedis(addr string, throttle func(sha string) []string) error {
	ctx := context.Background()
	connect := func(n int) *redis.Client {
		c := redis.NewClient(&redis.Options{
			Addr: addr, PoolSize: n, MinIdleConns: n, Protocol: 2,
			ReadTimeout: 10 * time.Second,
		})
		r.stops = append(r.stops, c.Close)
		return c
	}
	first := connect(1)
	begin := throttle("")
	if len(begin) > 1 {
		sha, err := first.ScriptLoad(ctx, script).Result()
		if err != nil {
			return err
		}
		begin = throttle(sha)
	}
	command := func(key string) []any {
		var words []any
		for _, word := range append(append([]string{}, begin...), key, redisBurst, redisCount,
			redisPeriod) {
			words = append(words, word)
		}
		return words
	}
	shared := connect(64)
	r.caller = func(id int, p Point) func() error {
		key := turns(id, p)
		if p.Items == 1 {
			return func() error { return admitted(shared.Do(ctx, command(key())...)) }
		}
		return func() error {
			pipe := shared.Pipeline()
			for range p.Items {
				pipe.Do(ctx, command(key())...)
			}
			all, err := pipe.Exec(ctx)
			if err != nil {
				return err
			}
			for _, c := range all {
				if err := admitted(c.(*redis.Cmd)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	r.tool = &tool{addr, append(append([]string{}, begin...), "key:__rand_int__", redisBurst,
		redisCount, redisPeriod)}
	return nil
}

// admitted reads the answer: limited or not, limit, remaining, seconds until a retry, until all is
// back.
func admitted(c *redis.Cmd) error {
	out, err := c.Int64Slice()
	switch {
	case err != nil:
		return err
	case len(out) != 5:
		return fmt.Errorf("an answer has %d numbers, want 5", len(out))
	case out[0] != 0:
		return errDenied
	}
	return nil
}

// tool is what redis-benchmark is told.
type tool struct {
	addr    string
	command []string
}

// run has redis-benchmark send n commands.
func (t *tool) run(p Point, n int) (row map[string]float64, cpu time.Duration, err error) {
	host, port, _ := net.SplitHostPort(t.addr)
	args := []string{
		"-h", host, "-p", port, "-c", strconv.Itoa(p.Callers), "-P",
		strconv.Itoa(p.Items), "-n", strconv.Itoa(n), "-r", strconv.Itoa(manyKeys), "--csv",
	}
	before := used(syscall.RUSAGE_CHILDREN)
	var said strings.Builder
	cmd := exec.Command("redis-benchmark", append(args, t.command...)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, 0, fmt.Errorf("redis-benchmark: %w\n%s", err, said.String())
	}
	lines, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(lines) != 2 {
		return nil, 0, errors.Join(err, fmt.Errorf("redis-benchmark answered %q", out))
	}
	row = map[string]float64{}
	for i, name := range lines[0] {
		if i > 0 {
			if row[name], err = strconv.ParseFloat(lines[1][i], 64); err != nil {
				return nil, 0, err
			}
		}
	}
	return row, used(syscall.RUSAGE_CHILDREN) - before, nil
}

// askByTool is ask by redis-benchmark, which counts no refusals: that there are none is seen where
// this process asks.
func askByTool(r *running, p Point, d time.Duration) (map[string]float64, error) {
	row, _, err := r.tool.run(p, 200*p.Items)
	if err != nil {
		return nil, err
	}
	if row, _, err = r.tool.run(p, max(1000, int(row["rps"]*d.Seconds()/4))); err != nil {
		return nil, err
	}
	n := max(1000, int(row["rps"]*d.Seconds()))
	meter, before := contest.NewMeter(), r.cpu()
	row, asked, err := r.tool.run(p, n)
	if err != nil {
		return nil, err
	}
	served := r.cpu() - before
	figures := map[string]float64{
		speed:     row["rps"],
		median:    1e3 * row["p50_latency_ms"],
		p99:       1e3 * row["p99_latency_ms"],
		serverCPU: float64(served.Nanoseconds()) / 1e3 / float64(n),
		clientCPU: float64(asked.Nanoseconds()) / 1e3 / float64(n),
		share:     100 * float64(asked) / float64(max(1, served+asked)),
		memory:    r.resident() / (1 << 20),
	}
	if others := meter.Others(served + asked); others >= 0 {
		figures[contest.Others] = others
	}
	return figures, nil
}
