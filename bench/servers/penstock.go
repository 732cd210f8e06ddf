package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/emptypb"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

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
			return conn.Invoke(context.Background(), emptyMethod, &emptypb.Empty{},
				&emptypb.Empty{})
		}
	}
	return err
}

// EmptyVerb is how this program is told to ServeEmpty.
const EmptyVerb = "serve-empty"

// nodes starts so many nodes of penstock, and returns where clients reach them by gRPC. More
// arguments replace those that stand here.
func nodes(p *Programs, n int, more ...string) (r *running, doors []string, err error) {
	r = &running{}
	addrs, err := freePorts("127.0.0.1", 3*n)
	if err != nil {
		return r, nil, err
	}
	for i := range n {
		gossip, peer, door := addrs[3*i], addrs[3*i+1], addrs[3*i+2]
		args := []string{
			"serve", "--name", fmt.Sprintf("n%d", i+1), "--grpc", door, "--http",
			"off", "--redis", "off", "--limits", "limits.yaml",
		}
		if n == 1 {
			args = append(args, "--gossip", "off", "--peer", "off")
		} else {
			args = append(args, "--gossip", gossip, "--peer", peer, "--join", addrs[0])
		}
		s, err := p.start("penstock", nil, append(args, more...)...)
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

func keyName(i int) string { return keyNames[i%manyKeys] }

var keyNames = func() (names [manyKeys]string) {
	for i := range names {
		names[i] = fmt.Sprintf("account:%09d", i*7919)
	}
	return names
}()

// turns are the keys that a caller asks for, one after the other: that of the point, or all of
// them.
func turns(id int, p Point) func() string {
	if p.Key != "" {
		return func() string { return p.Key }
	}
	i := id * 997
	if p.Keys > 0 {
		return func() string {
			i += 7919
			return joinKey(i % p.Keys)
		}
	}
	return func() string {
		i++
		return keyName(i)
	}
}

// ownCheck asks penstock by its own API: one call for as many checks as the point says.
func ownCheck(p *Programs) (*running, error) {
	r, doors, err := nodes(p, 1)
	if err != nil {
		return r, err
	}
	return r, r.askCheck(doors[0], "big")
}

func (r *running) askCheck(door, limit string) error {
	return r.askCheckOf(door, func() func() string { return func() string { return limit } })
}

// askCheckOf asks under the limits that each caller's own function says, one after the other.
func (r *running) askCheckOf(door string, limits func() func() string) error {
	conn, err := r.dial(door)
	asker := penstockv1.NewRateLimiterClient(conn)
	r.caller = func(id int, p Point) func() error {
		key, limit := turns(id, p), limits()
		return func() error {
			in := &penstockv1.CheckRequest{Items: make([]*penstockv1.Item, p.Items)}
			for k := range in.Items {
				in.Items[k] = &penstockv1.Item{
					Limit: limit(), Key: []byte(key()),
					Cost: new(int64(1)),
				}
			}
			out, err := asker.Check(context.Background(), in)
			if err != nil {
				return err
			}
			for _, d := range out.Decisions {
				if !d.Allowed {
					return errDenied
				}
			}
			return nil
		}
	}
	return err
}

// ownTakes asks penstock by its Go client.
func ownTakes(p *Programs) (*running, error) {
	r, doors, err := nodes(p, 1)
	if err != nil {
		return r, err
	}
	return r, r.askTakes(doors, "big", client.Config{})
}

// askTakes has callers take turns among doors, each of which has a client of its own.
func (r *running) askTakes(doors []string, limit string, config client.Config) error {
	clients := make([]*client.Client, len(doors))
	for i, door := range doors {
		config.Targets = []string{door}
		c, err := client.New(config)
		if err != nil {
			return err
		}
		clients[i] = c
		r.stops = append(r.stops, c.Close)
	}
	r.caller = func(id int, p Point) func() error {
		c, key, limit := clients[id%len(clients)], turns(id, p), limit
		if p.Limit > 0 {
			limit += "-few"
		}
		return func() error {
			d, err := c.Take(context.Background(), limit, key(), 1)
			if err == nil && !d.Allowed {
				err = errDenied
			}
			return err
		}
	}
	return nil
}

// ownBatches asks one of n nodes by penstock's Go client: one call for as many checks as the point
// says.
func ownBatches(n int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r, doors, err := nodes(p, n)
		if err != nil {
			return r, err
		}
		c, err := client.New(client.Config{Targets: doors[:1]})
		if err != nil {
			return r, err
		}
		r.stops = append(r.stops, c.Close)
		r.caller = func(id int, p Point) func() error {
			key, asked, out := turns(id, p), make([]client.Request,
				p.Items), make([]client.Decision, 0, p.Items)
			return func() (err error) {
				for k := range asked {
					asked[k] = client.Request{Limit: "big", Key: key(), Cost: 1}
				}
				if out, err = c.AppendAll(context.Background(), out[:0], asked); err != nil {
					return err
				}
				for k := range out {
					if !out[k].Allowed {
						return errDenied
					}
				}
				return nil
			}
		}
		return r, nil
	}
}

// oneThreadName is a node of which one thread at a time runs: a sidecar need not have more, and
// threads that wake each other up cost more than a single check does.
const oneThreadName = "penstock, one thread"

func withOneThread(start func(*Programs) (*running, error)) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		q := *p
		q.env = append(slices.Clone(p.env), "GOMAXPROCS=1")
		return start(&q)
	}
}

// ownDoor asks penstock by Gubernator's API.
func ownDoor(n int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r, doors, err := nodes(p, n)
		if err != nil {
			return r, err
		}
		return r, r.askAsGubernator(doors, 0)
	}
}
