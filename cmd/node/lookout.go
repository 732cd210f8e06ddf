package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
	"penstock/rpc/history"
)

// lookout asks the whole cluster again and again, over connections that it keeps: once a second
// must cost a node little. If the node that was asked for the members is gone, it asks another one
// that it has heard of. One goroutine calls its methods.
type lookout struct {
	remote
	entry *client.Client            // of some node; nil: to be made
	known []string                  // gRPC addresses of the members that were heard of last
	nodes map[string]*client.Client // by address
}

func newLookout(r remote) *lookout {
	return &lookout{remote: r, nodes: map[string]*client.Client{}}
}

const (
	// mostAgents is how many agents are asked for what their doors have answered: there may be
	// thousands.
	mostAgents = 32
	// mostAsked is how many keys of its sketch a node tells: all of them, so that the sum over the
	// nodes has no further error.
	mostAsked = 1000
)

// topLook is what all nodes together have said once.
type topLook struct {
	at      time.Time
	slowest time.Duration // answer of a node
	list    topList
	nodes   map[string]topNode // that have answered, by name
	missing []absent           // that have not answered
	failed  []absent           // that the others have given up
	unasked int                // agents beyond mostAgents
	err     error              // no node answers; nothing above is filled in but at
}

// absent is a node without an answer.
type absent struct{ name, why string }

// topNode is what the doors of one node have counted.
type topNode struct {
	boot                      uint64
	agent                     bool
	at                        time.Time // of the answer
	allowed, denied, degraded uint64    // since its start
	partial                   bool      // it had no time to look at all of its keys
	asked                     history.HeavyList
}

// look asks all nodes once.
func (l *lookout) look(ctx context.Context, in *penstockv1.TopRequest) *topLook {
	out := &topLook{nodes: map[string]topNode{}, list: topList{Keys: []topRow{}}}
	choose := func(members []*penstockv1.Member) []*penstockv1.Member {
		return l.choose(members, out)
	}
	out.missing, out.slowest, out.err = l.each(ctx, choose,
		func(ctx context.Context, c *client.Client, m *penstockv1.Member) (func(), error) {
			answer, err := askTop(ctx, c, m, in)
			return func() { out.add(answer, m.Role == "agent", time.Now()) }, err
		})
	slices.SortFunc(out.failed, byName)
	out.at = time.Now()
	return out
}

func byName(a, b absent) int { return cmp.Compare(a.name, b.name) }

// each asks those members that choose picks, all at once, and takes in their answers one after the
// other. missing are those that have not answered; slowest is the longest answer. An error says
// that no node answers.
func (l *lookout) each(
	ctx context.Context, choose func([]*penstockv1.Member) []*penstockv1.Member,
	ask func(context.Context, *client.Client, *penstockv1.Member) (takeIn func(), err error),
) (missing []absent, slowest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	members, err := l.members(ctx)
	if err != nil {
		return nil, 0, err
	}
	var all sync.WaitGroup
	var mu sync.Mutex // guards the results, and what takes answers in
	for _, m := range choose(members) {
		c, err := l.reach(m)
		all.Go(func() {
			began := time.Now()
			var takeIn func()
			if err == nil {
				takeIn, err = ask(ctx, c, m)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				why := client.Explain(err, []string{m.GrpcAddress}).Error()
				missing = append(missing, absent{m.Name, why})
				return
			}
			takeIn()
			slowest = max(slowest, time.Since(began))
		})
	}
	all.Wait()
	slices.SortFunc(missing, byName)
	l.forget(members, missing)
	return missing, slowest, nil
}

// members asks a node that is reached, or else the next one, for all nodes.
func (l *lookout) members(ctx context.Context) ([]*penstockv1.Member, error) {
	for {
		fresh := l.entry == nil
		if fresh {
			addrs := slices.Clone(l.Addr)
			for _, a := range l.known {
				if !slices.Contains(addrs, a) {
					addrs = append(addrs, a)
				}
			}
			var err error
			if l.entry, err = l.dial(addrs); err != nil {
				return nil, err
			}
		}
		answer, err := adminOf(l.entry).Members(ctx, &penstockv1.MembersRequest{})
		if err == nil {
			l.learn(answer.Members)
			return answer.Members, nil
		}
		l.entry.Close()
		l.entry = nil
		if fresh || ctx.Err() != nil {
			return nil, client.Explain(err, l.Addr)
		}
	}
}

// learn remembers where members are, for the time when the one that was asked is gone.
func (l *lookout) learn(members []*penstockv1.Member) {
	l.known = nil
	for _, m := range members {
		if m.GrpcAddress != "" && m.State != "failed" {
			l.known = append(l.known, m.GrpcAddress)
		}
	}
}

// choose picks the nodes to ask, and notes in out those that are not asked.
func (l *lookout) choose(members []*penstockv1.Member, out *topLook) (list []*penstockv1.Member) {
	agents := 0
	for _, m := range members {
		switch {
		case m.State == "failed":
			ago := time.Duration(m.GetFailedAgoMs()) * time.Millisecond
			out.failed = append(out.failed,
				absent{m.Name, fmt.Sprintf("failed %v ago", ago.Round(time.Second))})
			continue
		case m.Role == "agent":
			if agents++; agents > mostAgents {
				out.unasked++
				continue
			}
		}
		list = append(list, m)
	}
	return list
}

// errNoDoor says why a member cannot be asked.
var errNoDoor = errors.New("its gRPC door is off")

// reach is a client of m.
func (l *lookout) reach(m *penstockv1.Member) (*client.Client, error) {
	if m.Self { // it may be reached by another address than the one that it has told
		return l.entry, nil
	}
	if m.GrpcAddress == "" {
		return nil, errNoDoor
	}
	if c := l.nodes[m.GrpcAddress]; c != nil {
		return c, nil
	}
	c, err := l.dial([]string{m.GrpcAddress})
	if err == nil {
		l.nodes[m.GrpcAddress] = c
	}
	return c, err
}

// askTop asks m. Another node may have its address by now.
func askTop(ctx context.Context, c *client.Client, m *penstockv1.Member,
	in *penstockv1.TopRequest,
) (*penstockv1.TopResponse, error) {
	out, err := adminOf(c).Top(ctx, in)
	if err == nil && out.Node != m.Name {
		return nil, fmt.Errorf("%s answers at its address", out.Node)
	}
	return out, err
}

// forget closes the connections to nodes that are missing, or no members any more. The next look
// connects anew: a connection of its own waits longer after each failure.
func (l *lookout) forget(members []*penstockv1.Member, missing []absent) {
	wanted := map[string]bool{}
	for _, m := range members {
		lost := slices.ContainsFunc(missing, func(a absent) bool { return a.name == m.Name })
		wanted[m.GrpcAddress] = !lost && m.State != "failed"
		if lost && m.Self {
			l.closeEntry()
		}
	}
	for addr, c := range l.nodes {
		if !wanted[addr] {
			c.Close()
			delete(l.nodes, addr)
		}
	}
}

func (l *lookout) closeEntry() {
	if l.entry != nil {
		l.entry.Close()
		l.entry = nil
	}
}

func (l *lookout) close() {
	l.closeEntry()
	for _, c := range l.nodes {
		c.Close()
	}
}

// add takes in what a node has answered.
func (t *topLook) add(a *penstockv1.TopResponse, agent bool, now time.Time) {
	t.list.add(a)
	n := topNode{
		boot: a.Boot, agent: agent, at: now, partial: a.Partial,
		allowed: a.Allowed, denied: a.Denied, degraded: a.Degraded,
	}
	if s := a.Asked; s != nil {
		n.asked = heavyList(s)
	}
	t.nodes[a.Node] = n
}

// heavyList is a list of keys as a node has sent it.
func heavyList(s *penstockv1.AskedKeys) history.HeavyList {
	out := history.HeavyList{
		Total: s.Total, Unseen: s.Unseen, Sampled: s.Sampled,
		Seconds: float64(s.WindowMs) / 1000,
	}
	for _, k := range s.Keys {
		out.Keys = append(out.Keys, history.Heavy{
			Limit: k.LimitName, Key: string(k.Key), Checks: k.Checks, Over: k.Over,
			Denied: k.Denied,
		})
	}
	return out
}
