// Package servers puts servers that limit rates under the same load: penstock, Gubernator, and a gRPC service that does
// nothing. Follow one row: its contestants are started, each with processes of its own on loopback; round by round each
// is measured once at every point, by a client in this process; then they are stopped.
//
// Gubernator and penstock's Gubernator door are asked by the same client with the same messages.
package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"penstock/bench/contest"
	gubernator "penstock/proto/gubernator"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// Base is the contestant that the others are compared with.
const Base = "penstock"

// contestant is something that can be started.
type contestant struct {
	name  string
	start func(*Programs) (*running, error)
}

// running are the servers of a contestant, and how to ask them.
type running struct {
	servers []*process
	stops   []func() error
	// caller is how one caller asks, again and again, each time for as many decisions as the point says. An answer that says no, or
	// that is no decision, is an error.
	caller func(id int, p Point) func() error
}

func (r *running) stop() {
	for _, stop := range r.stops {
		_ = stop()
	}
	for _, s := range r.servers {
		s.stop()
	}
}

func (r *running) cpu() (sum time.Duration) {
	for _, s := range r.servers {
		used, _ := s.cpu()
		sum += used
	}
	return sum
}

func (r *running) resident() (sum float64) {
	for _, s := range r.servers {
		bytes, _ := s.resident()
		sum += float64(bytes)
	}
	return sum
}

// dial connects to addr as a client does that sets nothing: over one connection.
func (r *running) dial(addr string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		r.stops = append(r.stops, conn.Close)
	}
	return conn, err
}

// Row is contestants under the same load.
type Row struct {
	Name, Title string
	contestants []contestant
	points      []Point
}

// Rows are all of them.
var Rows = []Row{
	{
		"unary", "One check a call, at the owner of the key",
		[]contestant{{Base, ownCheck}, {"empty gRPC call", empty}},
		[]Point{{Callers: 1, Items: 1}, {Callers: 64, Items: 1}, {Callers: 256, Items: 1}},
	},
	{
		"client", "Takes of penstock's Go client, which share a stream",
		[]contestant{{Base, ownTakes}, {"empty gRPC call", empty}},
		[]Point{{Callers: 1, Items: 1}, {Callers: 64, Items: 1}, {Callers: 256, Items: 1}},
	},
	{
		"gubernator", "Gubernator's API, one node",
		[]contestant{{Base, ownDoor(1)}, {"gubernator", theirs(1)}},
		[]Point{
			{Callers: 1, Items: 1},
			{Callers: 64, Items: 1},
			{Callers: 256, Items: 1},
			{Callers: 16, Items: 100},
			{Callers: 16, Items: 1000},
			{Callers: 64, Items: 1, Rate: 8000},
		},
	},
	{
		"three", "Gubernator's API, three nodes, one of them asked",
		[]contestant{{Base, ownDoor(3)}, {"gubernator", theirs(3)}, {"empty gRPC call", empty}},
		[]Point{
			{Callers: 1, Items: 1},
			{Callers: 64, Items: 1},
			{Callers: 16, Items: 100, Any: true},
			{Callers: 16, Items: 1000, Any: true},
			{Callers: 64, Items: 1, Rate: 4000},
		},
	},
}

// Tables are what a report shows of the figures.
var Tables = []contest.Table{
	{Title: "Decisions a second", Figure: speed, Better: contest.More},
	{Title: "Median latency, µs", Figure: median, Better: contest.Less},
	{Title: "p99 latency, µs; of a rate, from when the call should have left", Figure: p99, Better: contest.Less},
	{Title: "CPU of the servers per decision, µs", Figure: serverCPU, Digits: 1, Better: contest.Less},
	{Title: "CPU of the client per decision, µs", Figure: clientCPU, Digits: 1},
	{Title: "Calls that failed, %", Figure: failures, Digits: 1},
	{Title: "Resident memory of the servers, MB", Figure: memory},
}

// Measure measures a row.
func Measure(p *Programs, row Row, rounds int, each time.Duration, progress io.Writer) ([]contest.Sample, error) {
	all := map[string]*running{}
	points := map[string]Point{}
	var jobs []contest.Job
	for _, c := range row.contestants {
		r, err := c.start(p)
		if r != nil {
			defer r.stop()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		all[c.name] = r
	}
	for _, point := range row.points {
		points[point.String()] = point
		for _, c := range row.contestants {
			if c.name == emptyName && point.Items > 1 {
				continue // a call without items is compared with one decision
			}
			jobs = append(jobs, contest.Job{Contestant: c.name, Point: point.String()})
		}
	}
	return contest.Run(rounds, jobs, func(j contest.Job) (map[string]float64, error) {
		return measure(all[j.Contestant], points[j.Point], each, progress)
	}, progress)
}

const emptyName = "empty gRPC call"

// empty is the service that does nothing.
func empty(p *Programs) (*running, error) {
	addrs, err := freePorts("127.0.0.1", 1)
	if err != nil {
		return nil, err
	}
	s, err := p.start(p.Self, nil, EmptyVerb, addrs[0])
	if err != nil {
		return nil, err
	}
	r := &running{servers: []*process{s}}
	return r, errors.Join(r.askEmpty(addrs[0]), s.awaitListener(addrs[0]))
}

func (r *running) askEmpty(addr string) error {
	conn, err := r.dial(addr)
	r.caller = func(int, Point) func() error {
		return func() error {
			return conn.Invoke(context.Background(), emptyMethod, &emptypb.Empty{}, &emptypb.Empty{})
		}
	}
	return err
}

// EmptyVerb is how this program is told to ServeEmpty.
const EmptyVerb = "serve-empty"

// serve starts so many nodes of penstock, and returns where clients reach them.
func serve(p *Programs, nodes int) (r *running, doors []string, err error) {
	r = &running{}
	addrs, err := freePorts("127.0.0.1", 3*nodes)
	if err != nil {
		return r, nil, err
	}
	for i := range nodes {
		gossip, peer, door := addrs[3*i], addrs[3*i+1], addrs[3*i+2]
		args := []string{"serve", "--name", fmt.Sprintf("n%d", i+1), "--grpc", door, "--http", "off", "--redis", "off", "--limits", "limits.yaml"}
		if nodes == 1 {
			args = append(args, "--gossip", "off", "--peer", "off")
		} else {
			args = append(args, "--gossip", gossip, "--peer", peer, "--join", addrs[0])
		}
		s, err := p.start("penstock", nil, args...)
		if err != nil {
			return r, nil, err
		}
		r.servers, doors = append(r.servers, s), append(doors, door)
		if err := s.awaitListener(door); err != nil {
			return r, nil, err
		}
	}
	return r, doors, nil
}

// manyKeys is how many keys there are, and how many callers begin apart.
const manyKeys = 10_000

func keyName(i int) string { return fmt.Sprintf("account:%09d", i%manyKeys*7919) }

// ownCheck asks penstock by its own API, one call for each check.
func ownCheck(p *Programs) (*running, error) {
	r, doors, err := serve(p, 1)
	if err != nil {
		return r, err
	}
	conn, err := r.dial(doors[0])
	asker := penstockv1.NewRateLimiterClient(conn)
	r.caller = func(id int, _ Point) func() error {
		i := id * 997
		return func() error {
			i++
			out, err := asker.Check(context.Background(), &penstockv1.CheckRequest{
				Items: []*penstockv1.Item{{Limit: "big", Key: []byte(keyName(i)), Cost: new(int64(1))}},
			})
			if err == nil && !out.Decisions[0].Allowed {
				err = errDenied
			}
			return err
		}
	}
	return r, err
}

var errDenied = errors.New("a request is refused that is within its limit")

// ownTakes asks penstock by its Go client.
func ownTakes(p *Programs) (*running, error) {
	r, doors, err := serve(p, 1)
	if err != nil {
		return r, err
	}
	c, err := client.New(client.Config{Targets: doors})
	if err != nil {
		return r, err
	}
	r.stops = append(r.stops, c.Close)
	r.caller = func(id int, _ Point) func() error {
		i := id * 997
		return func() error {
			i++
			d, err := c.Take(context.Background(), "big", keyName(i), 1)
			if err == nil && !d.Allowed {
				err = errDenied
			}
			return err
		}
	}
	return r, nil
}

// ownDoor asks penstock by Gubernator's API.
func ownDoor(nodes int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r, doors, err := serve(p, nodes)
		if err != nil {
			return r, err
		}
		return r, r.askAsGubernator(doors)
	}
}

// theirs asks Gubernator with its default settings.
func theirs(nodes int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r := &running{}
		addrs, err := freePorts("127.0.0.1", 2*nodes)
		if err != nil {
			return r, err
		}
		doors := addrs[:nodes]
		for i, door := range doors {
			s, err := p.start("gubernator", nil, append([]string{door, addrs[nodes+i]}, doors...)...)
			if err != nil {
				return r, err
			}
			r.servers = append(r.servers, s)
			if err := s.awaitListener(door); err != nil {
				return r, err
			}
		}
		return r, r.askAsGubernator(doors)
	}
}

// askAsGubernator makes r ask the first of doors by Gubernator's API. It waits until all of them own some keys.
func (r *running) askAsGubernator(doors []string) error {
	conn, err := r.dial(doors[0])
	if err != nil {
		return err
	}
	v1 := gubernator.NewV1Client(conn)
	others, err := keysOfOthers(v1, doors)
	if err != nil {
		return err
	}
	r.caller = func(id int, p Point) func() error {
		i := id * 997
		return func() error {
			in := &gubernator.GetRateLimitsReq{Requests: make([]*gubernator.RateLimitReq, p.Items)}
			for k := range in.Requests {
				i++
				key := keyName(i)
				if len(doors) > 1 && !p.Any {
					key = others[i%len(others)]
				}
				in.Requests[k] = hit(key)
			}
			out, err := v1.GetRateLimits(context.Background(), in)
			if err != nil {
				return err
			}
			for _, d := range out.Responses {
				if d.Error != "" || d.Status != gubernator.Status_UNDER_LIMIT {
					return fmt.Errorf("%w: %v", errDenied, d)
				}
			}
			return nil
		}
	}
	return nil
}

func hit(key string) *gubernator.RateLimitReq {
	return &gubernator.RateLimitReq{Name: "bench", UniqueKey: key, Hits: 1, Limit: 1_000_000_000, Duration: 3_600_000}
}

// keysOfOthers asks the node at the first of doors until all have a part of the keys, and returns those that are not its
// own.
func keysOfOthers(v1 gubernator.V1Client, doors []string) (others []string, err error) {
	for range 100 {
		in := &gubernator.GetRateLimitsReq{}
		for i := range 1000 {
			in.Requests = append(in.Requests, hit(keyName(i)))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		var out *gubernator.GetRateLimitsResp
		out, err = v1.GetRateLimits(ctx, in)
		cancel()
		if err == nil {
			others = nil
			owners := map[string]bool{}
			for i, d := range out.Responses {
				owner := cmp.Or(d.Metadata["owner"], doors[0]) // Gubernator names nobody but others
				if d.Error != "" {
					err = errors.New(d.Error)
				}
				owners[owner] = true
				if owner != doors[0] {
					others = append(others, keyName(i))
				}
			}
			if err == nil && len(owners) == len(doors) {
				return others, nil
			}
			err = cmp.Or(err, fmt.Errorf("%d nodes own keys, want %d", len(owners), len(doors)))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}
