package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"
)

// node is a running node.
type node struct{ redis, http string }

var (
	nodes  []node // three that know each other
	locked node   // one that wants a token
)

const token = "a-token-of-some-length"

func TestMain(m *testing.M) {
	os.Exit(func() int {
		stop, err := start()
		defer stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// start builds Penstock and runs four nodes of it. When it returns, three know each other and the
// fourth is alone.
func start() (stop func(), err error) {
	var started []*exec.Cmd
	dir, err := os.MkdirTemp("", "redis")
	stop = func() {
		for _, c := range started {
			c.Process.Kill()
			c.Wait()
		}
		os.RemoveAll(dir)
	}
	if err != nil {
		return stop, err
	}
	binary, secret := filepath.Join(dir, "penstock"), filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte(token), 0o600); err != nil {
		return stop, err
	}
	build := exec.Command("go", "build", "-o", binary, "./cmd/node")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return stop, fmt.Errorf("%w\n%s", err, out)
	}
	run := func(arguments ...string) error {
		c := exec.Command(binary, append([]string{
			"serve", "--grpc", "off", "--cluster",
			filepath.Base(dir),
		}, arguments...)...)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return err
		}
		started = append(started, c)
		return nil
	}
	ports, err := freePorts(14)
	if err != nil {
		return stop, err
	}
	for i := range 3 {
		p := ports[4*i:]
		arguments := []string{
			"--name", fmt.Sprint("n", i+1), "--gossip", p[0], "--peer", p[1],
			"--redis", p[2], "--http", p[3],
		}
		if i > 0 {
			arguments = append(arguments, "--join", ports[0])
		}
		if err := run(arguments...); err != nil {
			return stop, err
		}
		nodes = append(nodes, node{p[2], p[3]})
	}
	locked = node{ports[12], ports[13]}
	err = run("--name", "locked", "--gossip", "off", "--peer", "off", "--redis", locked.redis,
		"--http", locked.http, "--auth-token-file", secret)
	if err != nil {
		return stop, err
	}
	for _, n := range nodes {
		if err := wait("http://"+n.http+"/v1/members", func(body string) bool {
			return strings.Count(body, `"state":"active"`) == 3
		}); err != nil {
			return stop, err
		}
	}
	return stop, wait("http://"+locked.http+"/readyz", func(body string) bool {
		return strings.Contains(body, "ready")
	})
}

// freePorts are addresses on loopback that were free a moment ago.
func freePorts(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// wait returns when the page says that it is well.
func wait(url string, well func(body string) bool) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(
		50 * time.Millisecond) {
		if answer, err := http.Get(url); err == nil {
			b := new(strings.Builder)
			answer.Write(b)
			answer.Body.Close()
			if well(b.String()) {
				return nil
			}
		}
	}
	return fmt.Errorf("%s is not well after a minute", url)
}

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// throttle is CL.THROTTLE key 9 10 3600: ten at once, one every six minutes.
func throttle(key string) []any { return []any{"CL.THROTTLE", key, 9, 10, 3600} }

// Promise: go-redis connects and works, with both versions of the protocol, and one key has one
// count whichever node is asked, by whichever door.
func TestGoRedis(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			ctx := patience(t)
			key := t.Name()
			var clients []*redis.Client
			for _, n := range nodes {
				c := redis.NewClient(&redis.Options{
					Addr: n.redis, Protocol: protocol,
					ClientName: "example",
				})
				t.Cleanup(func() { c.Close() })
				if err := c.Ping(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				clients = append(clients, c)
			}
			for i := range 11 {
				got, err := clients[i%3].Do(ctx, throttle(key)...).Int64Slice()
				if err != nil || got[1] != 10 {
					t.Fatal(got, err)
				}
				if left := int64(max(0, 9-i)); got[2] != left || got[0] == 1 != (i == 10) {
					t.Errorf("answer %d is %d; want %d left, and a refusal at the end", i, got,
						left)
				}
			}
			if left := peekHTTP(t, nodes[1], key); left != 0 {
				t.Errorf("over HTTP %d are left of the same limit, want 0", left)
			}

			// RL.REDUCE says how many there were: 2, 1, 0.
			for i := range 4 {
				n, err := clients[i%3].Do(ctx, "RL.REDUCE", key, 2, 3600).Int64()
				if err != nil || n != int64(max(0, 2-i)) {
					t.Errorf("RL.REDUCE %d: %d, %v", i, n, err)
				}
			}
			if got, err := clients[0].Do(ctx, "RL.SESSIONIZE", key, 1, 60, "AT",
				5).Int64Slice(); err != nil || !slices.Equal(got, []int64{1, 5000}) {
				t.Errorf("RL.SESSIONIZE: %d, %v", got, err)
			}
			if err := clients[0].Get(ctx, "x").Err(); err == nil ||
				err.Error() != "Unknown command: 'get'" {
				t.Errorf("GET: %v", err)
			}
			if name, err := clients[0].ClientGetName(ctx).Result(); err != nil ||
				name != "example" {
				t.Errorf("CLIENT GETNAME: %q, %v", name, err)
			}

			// Many at once, from many: exactly as many are admitted as there are.
			var admitted atomic.Int64
			var callers sync.WaitGroup
			for caller := range 12 {
				callers.Go(func() {
					for range 5 {
						replies, err := clients[caller%3].Pipelined(ctx,
							func(p redis.Pipeliner) error {
								for range 100 {
									p.Do(ctx, "RL.REDUCE", key+"-many", 1000, 3600)
								}
								return nil
							})
						if err != nil {
							t.Error(err)
							return
						}
						for _, reply := range replies {
							if n, err := reply.(*redis.Cmd).Int64(); err == nil && n >= 1 {
								admitted.Add(1)
							}
						}
					}
				})
			}
			callers.Wait()
			if n := admitted.Load(); n != 1000 {
				t.Errorf("%d of 6000 were admitted; the limit is 1000", n)
			}
		})
	}
}

// peekHTTP is what is left of the limit of throttle, as a node's other door says it.
func peekHTTP(t *testing.T, n node, key string) int64 {
	t.Helper()
	body := fmt.Sprintf(
		`{"inline":{"name":"cl.throttle","algorithm":"gcra","limit":10,"per":"1h"},"key":%q,`+
			`"cost":0}`, key)
	answer, err := http.Post("http://"+n.http+"/v1/check", "application/json",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var d struct{ Remaining int64 }
	if err := json.NewDecoder(answer.Body).Decode(&d); err != nil ||
		answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status, err)
	}
	return d.Remaining
}

// Promise: valkey-go connects as it does by default, with RESP3 and tracking, and joins concurrent
// calls in pipelines.
func TestValkeyGo(t *testing.T) {
	ctx := patience(t)
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for _, n := range nodes {
		c, err := valkey.NewClient(valkey.ClientOption{
			InitAddress:       []string{n.redis},
			ForceSingleClient: true, ClientName: "example",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		for range 50 {
			callers.Go(func() {
				for range 20 {
					got, err := c.Do(ctx, c.B().Arbitrary("CL.THROTTLE").Keys(t.Name()).Args("499",
						"1", "3600").Build()).AsIntSlice()
					if err != nil || len(got) != 5 {
						t.Error(got, err)
						return
					}
					if got[0] == 0 {
						admitted.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	if n := admitted.Load(); n != 500 {
		t.Errorf("%d of 3000 were admitted; the limit is 500", n)
	}
}

// Promise: with a token, clients give it as their password; without it they get nothing.
func TestToken(t *testing.T) {
	ctx := patience(t)
	for _, c := range []struct {
		name     string
		password string
		want     string // in the error
	}{{"right", token, ""}, {"wrong", "guess", "WRONGPASS"}, {"none", "", "NOAUTH"}} {
		t.Run(c.name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{
				Addr: locked.redis, Password: c.password,
				MaxRetries: -1,
			})
			defer client.Close()
			err := client.Do(ctx, throttle(c.name)...).Err()
			if c.want == "" && err != nil || c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("go-redis: %v; want %q", err, c.want)
			}
			other, err := valkey.NewClient(valkey.ClientOption{
				InitAddress: []string{locked.redis},
				Password:    c.password, ForceSingleClient: true,
			})
			if err == nil {
				err = other.Do(ctx, other.B().Ping().Build()).Error()
				other.Close()
			}
			if c.want == "" && err != nil || c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("valkey-go: %v; want %q", err, c.want)
			}
		})
	}
}

// tool runs one of Debian's redis-tools.
func tool(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); errors.Is(err, exec.ErrNotFound) {
		t.Skipf("%s is not installed; Debian: apt-get install redis-tools", name)
	}
	out, err := exec.CommandContext(patience(t), name, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, arguments, err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	for i, version := range []string{"-2", "-3"} {
		_, port, _ := net.SplitHostPort(nodes[i].redis)
		for _, row := range []struct{ line, want string }{
			{"PING", "PONG\n"},
			{"CL.THROTTLE cli" + version + " 15 30 60", "0\n16\n15\n-1\n2\n"},
			{"RL.REDUCE cli" + version + " 2 3600", "2\n"},
			{"rl.get cli" + version + " 2 3600", "1\n"},
			{"RL.GET x 2", "Wrong number of arguments for 'rl.get' command\n\n"},
		} {
			if got := tool(
				t, "redis-cli", append([]string{"-p", port, version},
					strings.Fields(row.line)...)...,
			); got != row.want {
				t.Errorf("redis-cli %s %s: %q; want %q", version, row.line, got, row.want)
			}
		}
	}
}

// Many connections with deep pipelines, to a node that owns a third of the keys.
func TestRedisBenchmark(t *testing.T) {
	_, port, _ := net.SplitHostPort(nodes[2].redis)
	out := tool(t, "redis-benchmark", "-p", port, "-c", "50", "-P", "50", "-n", "20000", "-r",
		"1000", "-q", "CL.THROTTLE", "bench-__rand_int__", "15", "30", "60")
	if !regexp.MustCompile(`CL\.THROTTLE.*: [0-9.]+ requests per second`).MatchString(out) {
		t.Errorf("redis-benchmark printed %q", out)
	}
}
