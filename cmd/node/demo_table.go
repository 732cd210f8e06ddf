package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// watch calls show every so often with what the nodes count, until ctx ends or a node fails.
func (d *demo) watch(ctx context.Context, every time.Duration, show func(counts)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	before := d.count(counts{})
	show(before)
	for {
		select {
		case <-tick.C:
			before = d.count(before)
			show(before)
		case err := <-d.failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// counts is what the nodes of a demo have counted at one instant.
type counts struct {
	at    time.Time
	nodes []nodeCounts
}

type nodeCounts struct {
	name, state                string
	boot                       uint64 // 0: it was killed
	allowed, denied, forwarded uint64
	keys                       int // that this node decides for: copies for others are theirs
	// checks answered at this node's doors since the counts before
	perSecond float64
}

// count reads what the nodes have counted; before is what they had counted at an earlier time.
func (d *demo) count(before counts) counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := countAll(d.living(), before)
	if d.down >= 0 {
		dead := nodeCounts{name: d.nodes[d.down].member.ID, state: "killed"}
		c.nodes = append(c.nodes[:d.down], append([]nodeCounts{dead}, c.nodes[d.down:]...)...)
	}
	return c
}

func countAll(nodes []*running, before counts) counts {
	c := counts{at: time.Now()}
	for _, r := range nodes {
		s, v := r.node.Stats(), r.node.View()
		n := nodeCounts{
			name: r.member.ID, boot: r.member.Boot, state: v.Me().State.String(),
			keys: ownKeys(r.node), allowed: s.Allowed(), denied: s.Denied(),
			forwarded: s.Forwarded.Load(),
		}
		for _, b := range before.nodes {
			if b.boot == n.boot {
				n.perSecond = float64(n.allowed+n.denied-b.allowed-b.denied) / c.at.Sub(
					before.at).Seconds()
			}
		}
		c.nodes = append(c.nodes, n)
	}
	return c
}

// ownKeys counts the keys that a node decides for.
func ownKeys(node *cluster.Node) (n int) {
	const page = 10_000
	for from, more := (limiter.Cursor{}), true; more; {
		from, more = node.Keys("", from, page, func(*limiter.Limit, string, limiter.Decision) {
			n++
		})
	}
	return n
}

// table is for a terminal. It is at most 72 columns wide.
func (c counts) table() string {
	var b strings.Builder
	row := func(name, state string, cells ...string) {
		fmt.Fprintf(&b, "%-8s %-8s", name, state)
		for _, cell := range cells {
			fmt.Fprintf(&b, " %10s", cell)
		}
		b.WriteByte('\n')
	}
	row("NODE", "STATE", "CHECKS/S", "ALLOWED", "DENIED", "FORWARDED", "KEYS")
	all := nodeCounts{}
	for _, n := range c.nodes {
		row(n.name, n.state, n.cells()...)
		all.perSecond += n.perSecond
		all.allowed += n.allowed
		all.denied += n.denied
		all.forwarded += n.forwarded
		all.keys += n.keys
	}
	row("all", "", all.cells()...)
	return b.String()
}

func (n nodeCounts) cells() []string {
	if n.state == "killed" {
		return []string{"–", "–", "–", "–", "–"}
	}
	return []string{
		fmt.Sprintf("%.1f", n.perSecond), thousands(int64(n.allowed)), thousands(int64(n.denied)),
		thousands(int64(n.forwarded)), thousands(int64(n.keys)),
	}
}

// line is for a log: the totals, and what each node has answered.
func (c counts) line() string {
	var words []string
	for _, n := range c.nodes {
		words = append(words, fmt.Sprintf("%s %s: %d allowed, %d denied", n.name, n.state,
			n.allowed, n.denied))
	}
	return strings.Join(words, "; ")
}
