package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"penstock/cluster"
)

const (
	demoLoadKeys  = 4                     // of the node that is killed, and as many of others
	demoLoadPause = 25 * time.Millisecond // between two checks of a key
)

// demoLoad asks for keys while a node is killed, and sees which node decides for them.
type demoLoad struct {
	victim string
	keys   []string
	lost   []string // of keys and demoKey: those of the victim
	asking sync.WaitGroup

	mu       sync.Mutex // guards below
	killed   time.Time
	moved    map[string]moved // by key of lost
	degraded int              // answers since killed
	failed   int              // questions without an answer, since killed
}

// moved is which node decides for a key instead, and how long after the end of the other one it
// first did.
type moved struct {
	by    string
	after time.Duration
}

// newDemoLoad chooses keys that victim owns, and as many of others.
func newDemoLoad(victim *running, others []*running) *demoLoad {
	l := &demoLoad{
		victim: victim.member.ID, lost: []string{demoKey}, moved: map[string]moved{},
	}
	rest := demoLoadKeys
	for i := 0; len(l.lost) <= demoLoadKeys || rest > 0; i++ {
		key := fmt.Sprintf("load-%d", i)
		if owned := ownerOf(others[0], key) == l.victim; owned && len(l.lost) <= demoLoadKeys {
			l.lost = append(l.lost, key)
			l.keys = append(l.keys, key)
		} else if !owned && rest > 0 {
			rest--
			l.keys = append(l.keys, key)
		}
	}
	return l
}

// start asks nodes by turns until ctx ends. demoKey is looked at only.
func (l *demoLoad) start(ctx context.Context, nodes []*running) {
	for _, key := range l.keys {
		item := cluster.Item{Limit: demoQuota.Name, Key: key, Cost: 1, Op: cluster.OpTake}
		l.asking.Go(func() { l.ask(ctx, nodes, item) })
	}
	look := cluster.Item{Limit: demoLimit.Name, Key: demoKey, Cost: 1, Op: cluster.OpPeek}
	l.asking.Go(func() { l.ask(ctx, nodes, look) })
}

func (l *demoLoad) wait() { l.asking.Wait() }

func (l *demoLoad) ask(ctx context.Context, nodes []*running, item cluster.Item) {
	tick := time.NewTicker(demoLoadPause)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		out := make([]cluster.Decision, 1)
		request := cluster.Request{Items: []cluster.Item{item}}
		err := nodes[i%len(nodes)].node.Check(&request, out)
		l.see(item.Key, &out[0], err, time.Now())
	}
}

// begin has the answers from now on count.
func (l *demoLoad) begin(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = now
}

// see looks at an answer.
func (l *demoLoad) see(key string, a *cluster.Decision, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.killed.IsZero():
	case err != nil:
		l.failed++
	case a.Degraded:
		l.degraded++
	case a.Owner != l.victim:
		if _, known := l.moved[key]; !known {
			l.moved[key] = moved{a.Owner, now.Sub(l.killed)}
		}
	}
}

// done reports whether other nodes decide for all keys of the victim.
func (l *demoLoad) done() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range l.lost {
		if _, known := l.moved[key]; !known {
			return false
		}
	}
	return true
}

// text says which nodes have replaced the victim, and when.
func (l *demoLoad) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := time.Duration(0)
	for _, key := range l.lost {
		longest = max(longest, l.moved[key].after)
	}
	alice := l.moved[demoKey]
	return fmt.Sprintf("%s decides for %q after %.2fs; all %d keys of %s that are asked for are "+
		"decided by others after %.2fs. Since its end: %s, %s", alice.by, demoKey,
		alice.after.Seconds(), len(l.lost), l.victim, longest.Seconds(),
		some(l.degraded, "degraded answer"), some(l.failed, "failed request"))
}
