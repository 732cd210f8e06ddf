package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"sync"
	"time"

	"penstock/cluster"
	"penstock/ring"
	"penstock/rpc/history"
)

// sayFunc prints a line of a demo.
type sayFunc func(format string, a ...any)

// operate shows the table and does what keys ask for, until one quits, ctx ends, or a node fails.
func (d *demo) operate(ctx context.Context, sh shell, bottom *screen) error {
	t, err := openTerminal(sh, false)
	if err != nil {
		return err
	}
	defer t.close()
	bottom.through(t)
	ctx, stop := context.WithCancel(ctx)
	say := func(format string, a ...any) {
		width, _ := t.size()
		text := time.Now().Format(time.TimeOnly) + "  " + fmt.Sprintf(format, a...)
		fmt.Fprintln(bottom, inLines(text, width, demoIndent))
	}
	orders := make(chan key)
	var working sync.WaitGroup
	working.Go(func() { d.obey(ctx, orders, say) })
	working.Go(func() {
		defer stop()
		d.listen(ctx, t, orders, say)
	})
	err = d.watch(ctx, time.Second, func(c counts) { bottom.show(c.table() + demoHelp) })
	stop()
	working.Wait()
	return err
}

// demoIndent is as wide as the time before what a demo says.
const demoIndent = 10

// demoHelp is at most as wide as the table.
const demoHelp = "k kills the owner of \"" + demoKey + "\"  r brings it back  q quits\n"

// listen passes on what somebody types, until that is to quit.
func (d *demo) listen(ctx context.Context, t *terminal, orders chan<- key, say sayFunc) {
	stops := stopSignals()
	defer signal.Stop(stops)
	for pressed := t.keys(); ; {
		select {
		case k, there := <-pressed:
			switch {
			case !there || k == 'q' || k == 'Q' || k == keyInterrupt:
				return
			case k == keySuspend:
				t.suspend()
			case k == 'k' || k == 'r':
				select {
				case orders <- k:
				default:
					say("not yet: what was asked for before is not done")
				}
			}
		case <-stops:
			t.suspend()
		case <-ctx.Done():
			return
		}
	}
}

// obey kills and brings back, one after the other.
func (d *demo) obey(ctx context.Context, orders <-chan key, say sayFunc) {
	for {
		select {
		case k := <-orders:
			if k == 'k' {
				d.kill(ctx, say)
			} else {
				d.revive(ctx, say)
			}
		case <-ctx.Done():
			return
		}
	}
}

const (
	demoLoadLead = 2 * time.Second       // that a node is asked before it is killed
	demoPatience = 20 * time.Second      // at most, for what should come of it
	demoLook     = 10 * time.Millisecond // how often is looked whether it has come
)

// kill ends the owner of demoKey as kill -9 would: it hands over nothing, and says nothing. Before,
// and until its heirs were measured, the other nodes are asked for some of its keys, so that there
// is something to lose.
func (d *demo) kill(ctx context.Context, say sayFunc) {
	victim, others := d.choose()
	if victim == nil {
		say("%s is down already: r brings it back", others[0].member.ID)
		return
	}
	name := victim.member.ID
	load := newDemoLoad(victim, others)
	say("%s owns %q, and is killed in %v. To see what that costs, %s are asked for %d keys of the "+
		"limit %q, each %d times a second", name, demoKey, demoLoadLead, names(others),
		len(load.keys), demoQuota.Name, time.Second/demoLoadPause)
	sending, stop := context.WithCancel(ctx)
	defer load.wait()
	defer stop()
	load.start(sending, others)
	if sleep(ctx, demoLoadLead); ctx.Err() != nil {
		return
	}
	load.begin(time.Now())
	d.crash(victim)
	say("%s is killed, without a goodbye: see http://%s/ui/#failures", name,
		others[0].member.HTTPAddr)
	if !until(ctx, load.done) {
		say("after %v no other node decides for all of its keys: %s", demoPatience, load.text())
		return
	}
	say("%s", load.text())
	var verdict history.Verdict
	if !until(ctx, func() (done bool) {
		verdict, done = judge(victim, others)
		return done
	}) {
		say("what was lost was not measured within %v", demoPatience)
		return
	}
	say("%s", lostText(name, verdict))
}

// until waits for something, for demoPatience at most.
func until(ctx context.Context, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	for !done() {
		if sleep(ctx, demoLook); ctx.Err() != nil {
			return false
		}
	}
	return true
}

// choose picks the member that owns demoKey, and the others. If a node is down already, there is
// none to kill, and it is the first of the others.
func (d *demo) choose() (victim *running, others []*running) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down >= 0 {
		return nil, []*running{d.nodes[d.down]}
	}
	owner := ownerOf(d.nodes[0], demoKey)
	for _, r := range d.nodes[:demoNodes] {
		if r.member.ID == owner {
			victim = r
		} else {
			others = append(others, r)
		}
	}
	return victim, others
}

// crash ends a node of this demo.
func (d *demo) crash(r *running) {
	d.mu.Lock()
	for i := range d.nodes {
		if d.nodes[i] == r {
			d.down = i
		}
	}
	d.mu.Unlock()
	r.crash()
}

// crash ends a node as kill -9 would, as far as others see: it gives nothing away, and says
// nothing.
func (r *running) crash() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	r.stop(now, 0)
}

func names(nodes []*running) string {
	var list []string
	for _, r := range nodes {
		list = append(list, r.member.ID)
	}
	return strings.Join(list, " and ")
}

// judge puts together what the others have measured of the victim's end; false: they have not yet.
func judge(victim *running, others []*running) (v history.Verdict, done bool) {
	var seen []history.Failure
	for _, r := range others {
		for _, e := range r.history.Events(0) {
			if e.Kind == history.Failed && e.Boot == victim.member.Boot && e.Failure != nil {
				seen = append(seen, *e.Failure)
			}
		}
	}
	return history.Judge(seen), len(seen) == len(others)
}

// lostText says what was measured, beside what is promised.
func lostText(name string, v history.Verdict) string {
	if v.Keys == 0 {
		return "what was lost cannot be told: no key was answered for before and after"
	}
	text := fmt.Sprintf("lost with %s: %s of the worst key, at most %d promised (what it used "+
		"within 0.1 s); %s of %s in all", name, some(int(v.Worst), "unit"), v.Promised,
		some(int(v.Extra), "unit"), some(v.Keys, "key"))
	if v.Broken > 0 {
		text += fmt.Sprintf(". THE PROMISE IS BROKEN for %d keys", v.Broken)
	}
	return text
}

// revive starts the node that was killed anew: with its name and addresses, and without counters.
func (d *demo) revive(ctx context.Context, say sayFunc) {
	d.mu.Lock()
	down := d.down
	var s settings
	if down >= 0 {
		s = d.nodes[down].settingsAgain()
		for _, r := range d.living() {
			s.Join = append(s.Join, r.gossip.Addr())
		}
	}
	d.mu.Unlock()
	if down < 0 {
		say("all nodes run: k kills the owner of %q", demoKey)
		return
	}
	began := time.Now()
	r, err := startOne(ctx, s, d.log)
	if err == nil && !until(ctx, r.isReady) {
		r.crash()
		err = fmt.Errorf("it is not ready after %v", demoPatience)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		say("%s does not come back: %v; r tries again", s.Name, err)
		return
	}
	d.mu.Lock()
	d.nodes[down], d.down = r, -1
	d.mu.Unlock()
	d.follow(r)
	ready := time.Since(began)
	if until(ctx, r.holdsAll) {
		say("%s is back: it is ready after %.2fs, and decides for its %s partitions after %.2fs, "+
			"with the counters that the others have given it", s.Name, ready.Seconds(),
			thousands(int64(r.node.Held())), time.Since(began).Seconds())
	}
}

// settingsAgain are those of a node that has ended, with the addresses that it had.
func (r *running) settingsAgain() settings {
	s := r.settings
	s.Gossip, s.Peer, s.GRPC = r.gossip.Addr(), r.member.PeerAddr, r.member.GRPCAddr
	s.HTTP, s.Redis, s.Join = r.member.HTTPAddr, r.doors.address("--redis"), nil
	return s
}

// holdsAll reports whether r holds all partitions that it owns.
func (r *running) holdsAll() bool {
	v := r.node.View()
	owned := 0
	for p := range ownedPartitions(v) {
		if !r.node.HoldsPartition(p) {
			return false
		}
		owned++
	}
	return owned > 0
}

// ownedPartitions are those that the node of v owns.
func ownedPartitions(v *cluster.View) func(func(int) bool) {
	return func(yield func(int) bool) {
		if v == nil || v.Ring == nil {
			return
		}
		names := v.Ring.Members()
		for p := range ring.Partitions {
			if names[v.Ring.Owner(p)] == v.Me().ID && !yield(p) {
				return
			}
		}
	}
}
