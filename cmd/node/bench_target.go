package main

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// target is what the workers of a run share.
type target struct {
	// one per address, which asks the next ones while that is down
	clients []*client.Client
	drawer  func(r *mathrand.Rand) (draw func() int) // of keys' numbers
	prefix  string
	limit   string
	inline  *penstockv1.InlineLimit
	rule    string // the limit in words
	oracle  *oracle
	batch   int
	cost    int64
	timeout time.Duration
}

func (v *benchVerb) target() (*target, error) {
	t := &target{prefix: v.Prefix, limit: v.Limit, batch: v.Batch, cost: v.Cost, timeout: v.Timeout}
	if t.prefix == "" {
		t.prefix = "bench-" + rand.Text()[:8] + "-"
	}
	if v.Limit == "" {
		l := v.inline
		if !l.given() {
			l = benchLimit
		}
		limit, wire, err := l.limit("bench")
		if err != nil {
			return nil, err
		}
		t.inline, t.oracle = wire, newOracle(limit, v.Cost, v.Keys)
		t.rule = fmt.Sprintf("%s, %s per %v", l.Algorithm, thousands(limit.Limit), limit.Per)
	} else {
		t.rule = v.Limit + " of the cluster"
	}
	for i := range v.Addr {
		c, err := v.dial(slices.Concat(v.Addr[i:], v.Addr[:i]))
		if err != nil {
			t.close()
			return nil, err
		}
		t.clients = append(t.clients, c)
	}
	t.drawer = v.drawer
	return t, nil
}

// drawer draws numbers of keys for one worker from its source r.
func (v *benchVerb) drawer(r *mathrand.Rand) (draw func() int) {
	if v.Dist == "uniform" || v.Keys == 1 {
		return func() int { return r.IntN(v.Keys) }
	}
	z := mathrand.NewZipf(r, v.Zipf, 1, uint64(v.Keys-1))
	return func() int { return int(z.Uint64()) }
}

func (t *target) close() {
	for _, c := range t.clients {
		c.Close()
	}
}

// warmUp opens every connection, and finds out before the clock runs whether there is a node at
// each address: once it does, one that is missing goes unnoticed.
func (v *benchVerb) warmUp(ctx context.Context, t *target) error {
	ask := func(c *client.Client, addr string) error {
		ctx, cancel := context.WithTimeout(ctx, max(v.Timeout, 2*time.Second))
		defer cancel()
		_, err := adminOf(c).Members(ctx, &penstockv1.MembersRequest{})
		return client.Explain(err, []string{addr})
	}
	for i, addr := range v.Addr {
		alone, err := v.dial([]string{addr})
		if err != nil {
			return err
		}
		err = ask(alone, addr)
		alone.Close()
		if err == nil {
			err = ask(t.clients[i], addr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sender makes the requests of one worker.
func (t *target) sender(r *mathrand.Rand) sendFunc {
	draw := t.drawer(r)
	return func(ctx context.Context) outcome {
		items, keys := make([]*penstockv1.Item, t.batch), make([]int, t.batch)
		for i := range items {
			keys[i] = draw()
			items[i] = &penstockv1.Item{
				Limit: t.limit, Inline: t.inline, Key: strconv.AppendInt([]byte(t.prefix),
					int64(keys[i]), 10), Cost: &t.cost,
			}
		}
		// A call that is under way when the run ends has its whole time: its answer still counts.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout)
		defer cancel()
		decisions, err := checkItems(ctx, t.clients[r.IntN(len(t.clients))], items)
		if err != nil || len(decisions) != t.batch {
			return outcome{failed: t.batch, err: err}
		}
		return t.count(keys, decisions)
	}
}

func (t *target) count(keys []int, decisions []*penstockv1.Decision) (o outcome) {
	for i, d := range decisions {
		if d.Allowed {
			o.allowed++
		} else {
			o.denied++
		}
		if d.Degraded {
			o.degraded++
		}
		if t.oracle != nil {
			t.oracle.count(keys[i], d.Allowed)
		}
	}
	return o
}
