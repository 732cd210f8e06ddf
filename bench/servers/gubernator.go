package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	gubernator "penstock/proto/gubernator"
)

const gubernatorName = "gubernator"

// theirs asks Gubernator with its default settings.
func theirs(n int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r, doors, err := gubernators(p, n)
		if err != nil {
			return r, err
		}
		return r, r.askAsGubernator(doors, 0)
	}
}

// gubernators starts so many nodes of Gubernator.
func gubernators(p *Programs, n int) (r *running, doors []string, err error) {
	r = &running{}
	addrs, err := freePorts("127.0.0.1", 2*n)
	if err != nil {
		return r, nil, err
	}
	doors = addrs[:n]
	for i, door := range doors {
		s, err := p.start("gubernator", nil, append([]string{door, addrs[n+i]}, doors...)...)
		if err != nil {
			return r, nil, err
		}
		r.servers = append(r.servers, s)
		if err := s.awaitListener(door); err != nil {
			return r, nil, err
		}
	}
	return r, doors, nil
}

// askAsGubernator makes r ask by Gubernator's API: the first of doors, or all of them in turns
// where the point says so. It waits until all of them own some keys.
func (r *running) askAsGubernator(doors []string, behavior gubernator.Behavior) error {
	asked := make([]gubernator.V1Client, len(doors))
	for i, door := range doors {
		conn, err := r.dial(door)
		if err != nil {
			return err
		}
		asked[i] = gubernator.NewV1Client(conn)
	}
	var others []string
	for i := range asked { // the first comes last: its others are kept
		var err error
		if others, err = keysOfOthers(asked[len(asked)-1-i], doors, len(asked)-1-i); err != nil {
			return err
		}
	}
	r.caller = func(id int, p Point) func() error {
		v1, key := asked[0], turns(id, p)
		if p.Each {
			v1 = asked[id%len(asked)]
		}
		if len(doors) > 1 && !p.Any && !p.Each {
			i := id * 997
			key = func() string {
				i++
				return others[i%len(others)]
			}
		}
		return func() error {
			in := &gubernator.GetRateLimitsReq{Requests: make([]*gubernator.RateLimitReq, p.Items)}
			for k := range in.Requests {
				in.Requests[k] = hit(key(), cmp.Or(p.Limit, 1_000_000_000), behavior)
			}
			out, err := v1.GetRateLimits(context.Background(), in)
			if err != nil {
				return err
			}
			for _, d := range out.Responses {
				if d.Error != "" {
					return errors.New(d.Error)
				}
				if d.Status != gubernator.Status_UNDER_LIMIT {
					return errDenied
				}
			}
			return nil
		}
	}
	return nil
}

func hit(key string, limit int64, behavior gubernator.Behavior) *gubernator.RateLimitReq {
	return &gubernator.RateLimitReq{
		Name: "bench", UniqueKey: key, Hits: 1, Limit: limit,
		Duration: 3_600_000, Behavior: behavior,
	}
}

// keysOfOthers asks the node at doors[self] until all have a part of the keys, and returns those
// that are not its own.
func keysOfOthers(v1 gubernator.V1Client, doors []string, self int) (others []string, err error) {
	for range 100 {
		in := &gubernator.GetRateLimitsReq{}
		for i := range 1000 {
			in.Requests = append(in.Requests, hit(keyName(i), 1_000_000_000, 0))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		var out *gubernator.GetRateLimitsResp
		out, err = v1.GetRateLimits(ctx, in)
		cancel()
		if err == nil {
			others = nil
			owners := map[string]bool{}
			for i, d := range out.Responses {
				// Gubernator names nobody but others
				owner := cmp.Or(d.Metadata["owner"], doors[self])
				if d.Error != "" {
					err = errors.New(d.Error)
				}
				owners[owner] = true
				if owner != doors[self] {
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
