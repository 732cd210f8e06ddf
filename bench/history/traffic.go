package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"penstock/bench/history/judge"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// deadline is how long a client waits for an answer.
const deadline = 2 * time.Second

// recorder keeps what was asked, heard and done.
type recorder struct {
	began time.Time

	mu     sync.Mutex // guards below
	ops    []*judge.Op
	faults []*judge.Fault
	stalls []judge.Stall
}

func (r *recorder) now() time.Duration { return time.Since(r.began) }

func (r *recorder) add(ops ...*judge.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range ops {
		o.Number = len(r.ops)
		r.ops = append(r.ops, o)
	}
}

func (r *recorder) history(o *options) *judge.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &judge.History{
		Seed: o.seed, Limits: limits, Faults: r.faults, Stalls: r.stalls, Ops: r.ops,
		Patience: o.patience,
	}
}

// way is how long messages take on this machine: what 99 of 100 answers of the last second took.
// That is the way there and back, and all that is done between.
func (r *recorder) way() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var took []time.Duration
	for _, o := range slices.Backward(r.ops) {
		if o.End < r.now()-time.Second {
			break
		}
		if o.Failed == "" && o.Mark == judge.Unmarked {
			took = append(took, o.End-o.Start)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// watch notes when this process did not get to run.
func (r *recorder) watch(ctx context.Context) {
	const often, much = 10 * time.Millisecond, 150 * time.Millisecond
	for last := r.now(); ctx.Err() == nil; {
		time.Sleep(often)
		now := r.now()
		if now-last > much {
			r.mu.Lock()
			r.stalls = append(r.stalls, judge.Stall{From: last, To: now})
			r.mu.Unlock()
		}
		last = now
	}
}

// slot is a key that is asked for until another one takes its place.
type slot struct {
	limit string
	key   string
	until time.Duration
	count int
}

// slotsOf is how many keys of each limit are asked for at a time.
var slotsOf = map[string]int{
	"few": 6, "many": 6, "sync": 3, "deny": 2, "cell": 3, "bucket": 2, "held": 3, "leased": 2,
	"rate": 3, "permits": 2,
}

// keptKeys are charged at the beginning, and now and then.
const keptKeys = 600

// traffic asks.
type traffic struct {
	*recorder
	cluster *cluster
	dice    *rand.Rand
	clients []knowing
	slots   []*slot
	open    sync.WaitGroup
	ids     uint64
	origin  uint64
	asked   map[string]bool // keys that were asked for, of Exact limits
	known   []*judge.Op     // a request of each of them
}

// knowing is a client of the one node that it knows, or of all members.
type knowing struct {
	*client.Client
	only *node
}

func newTraffic(r *recorder, c *cluster, seed uint64) *traffic {
	t := &traffic{
		recorder: r, cluster: c, dice: rand.New(rand.NewPCG(seed, 1)), origin: rand.Uint64()>>1 | 1,
		asked: map[string]bool{},
	}
	for _, l := range limits {
		for range slotsOf[l.Name] {
			t.slots = append(t.slots, &slot{limit: l.Name})
		}
	}
	return t
}

// connect makes the clients. The nodes are up: a client that knows one alone would wait before it
// tried again.
func (t *traffic) connect() error {
	c := t.cluster
	for i := range 2 {
		var targets []string
		for k := range maxNodes {
			targets = append(targets, "unix://"+c.nodes[(i*3+k)%maxNodes].path("grpc"))
		}
		to, err := client.New(client.Config{Targets: targets})
		if err != nil {
			return err
		}
		t.clients = append(t.clients, knowing{to, nil})
	}
	for _, n := range c.agents { // a program that has an agent beside it knows no other node
		to, err := client.New(client.Config{Targets: []string{"unix://" + n.path("grpc")}})
		if err != nil {
			return err
		}
		t.clients = append(t.clients, knowing{to, n})
	}
	return nil
}

func (t *traffic) close() {
	for _, c := range t.clients {
		_ = c.Close()
	}
}

// run asks at a rate until ctx ends, and waits for the answers.
func (t *traffic) run(ctx context.Context, rate int) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	began, sent := time.Now(), 0
	for ctx.Err() == nil {
		<-ticker.C
		due := int(time.Since(began).Seconds() * float64(rate))
		sent = max(sent, due-rate) // after a stall not all at once
		for ; sent < due; sent++ {
			if t.one(); sent%rate == 0 {
				t.lookAtSome()
			}
		}
	}
	t.open.Wait()
}

// one draws a request and sends it.
func (t *traffic) one() {
	s := t.draw(t.slots)
	switch x := t.dice.IntN(100); {
	case x < 2:
		s = &slot{limit: "kept", key: fmt.Sprintf("kept-%d", t.dice.IntN(keptKeys))}
		t.single(s, "grpc")
	case s.limit == "held" || s.limit == "permits":
		t.hold(s)
	case s.limit == "cell" || s.limit == "bucket":
		t.single(s, []string{"redis", "redis", "grpc-batch", "post"}[t.dice.IntN(4)])
	case x < 12:
		t.repeated(s)
	case x < 22:
		t.several(s, false)
	case x < 28:
		t.several(s, true)
	default:
		t.single(s, []string{"http", "grpc", "client", "post", "grpc"}[t.dice.IntN(5)])
	}
}

// draw is a slot with a key that lives.
func (t *traffic) draw(slots []*slot) *slot {
	s := slots[t.dice.IntN(len(slots))]
	if t.now() >= s.until {
		s.count++
		s.until = t.now() + 2*time.Second + time.Duration(t.dice.Int64N(int64(8*time.Second)))
		s.key = fmt.Sprintf("%s-%d-%d", s.limit, slices.Index(t.slots, s), s.count)
	}
	return s
}

// node draws one to be asked; a stopped one now and then.
func (t *traffic) node() *node {
	if frozen := t.cluster.asked(stopped); len(frozen) > 0 && t.dice.IntN(20) == 0 {
		return frozen[t.dice.IntN(len(frozen))]
	}
	live := t.cluster.asked(up)
	if len(live) == 0 {
		return nil
	}
	return live[t.dice.IntN(len(live))]
}

func (t *traffic) op(s *slot, kind judge.Kind, cost int64) *judge.Op {
	o := &judge.Op{Kind: kind, Limit: s.limit, Key: s.key, Cost: cost, Mark: judge.Unmarked}
	if s.limit != "leased" && s.limit != "rate" && s.limit != "permits" {
		if name := s.limit + "/" + s.key; !t.asked[name] {
			t.asked[name], t.known = true, append(t.known, o)
		}
	}
	return o
}

// send runs ask in the background, and records what the ops became.
func (t *traffic) send(door string, n *node, ops []*judge.Op, ask func(ctx context.Context) error) {
	name := ""
	if n != nil {
		name = n.name
	}
	t.open.Go(func() { t.wait(door, name, ops, ask) })
}

func (t *traffic) wait(door, node string, ops []*judge.Op, ask func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	start := t.now()
	for _, o := range ops {
		o.Door, o.Node, o.Start = door, node, start
	}
	err := ask(ctx)
	end := t.now()
	for _, o := range ops {
		o.End = end
		if err != nil {
			o.Failed = strings.TrimSpace(fmt.Sprintf("%v %.200s", status.Code(err), err.Error()))
		}
	}
	t.add(ops...)
}

// single is one take through one door.
func (t *traffic) single(s *slot, door string) {
	n := t.node()
	if n == nil {
		return
	}
	o := t.op(s, judge.Take, 1)
	ops := []*judge.Op{o}
	switch door {
	case "http":
		t.send(door, n, ops, func(ctx context.Context) error { return n.get(ctx, o) })
	case "post":
		t.send(door, n, ops, func(ctx context.Context) error { return n.items(ctx, ops, false) })
	case "redis":
		t.send(door, n, ops, func(ctx context.Context) error { return n.throttle(ctx, o) })
	case "client":
		to := t.clients[t.dice.IntN(len(t.clients))]
		if to.only != nil && !slices.Contains(t.cluster.asked(up, stopped), to.only) {
			return
		}
		t.send(door, to.only, ops, func(ctx context.Context) error {
			d, err := to.Take(ctx, o.Limit, o.Key, o.Cost)
			if err == nil {
				(&decision{d.Allowed, d.Remaining, d.Owner, d.Source, d.Degraded, d.Bound}).into(o)
			}
			return err
		})
	default:
		t.send(
			door,
			n,
			ops,
			func(ctx context.Context) error { return n.call(ctx, ops, false, nil) },
		)
	}
}

// several is a batch, or a set that is admitted as a whole.
func (t *traffic) several(s *slot, atomic bool) {
	n := t.node()
	if n == nil {
		return
	}
	var ops []*judge.Op
	taken := map[*slot]bool{s: true}
	for range 1 + t.dice.IntN(3) {
		other := t.draw(t.slots)
		switch other.limit {
		case "few", "many", "sync", "deny":
			taken[other] = true
		}
	}
	if atomic && (s.limit == "leased" || s.limit == "rate") {
		delete(taken, s)
	}
	for _, other := range t.slots {
		if taken[other] {
			ops = append(ops, t.op(other, judge.Take, 1+t.dice.Int64N(2)))
		}
	}
	if len(ops) == 0 {
		return
	}
	if t.dice.IntN(2) == 0 {
		t.send("post", n, ops, func(ctx context.Context) error { return n.items(ctx, ops, atomic) })
	} else {
		t.send("grpc", n, ops, func(ctx context.Context) error {
			return n.call(ctx, ops, atomic,
				nil)
		})
	}
}

// repeated sends a take under its id twice or three times, through any nodes, within a second.
func (t *traffic) repeated(s *slot) {
	if s.limit == "leased" {
		return
	}
	t.ids++
	id := &penstockv1.RequestId{Origin: t.origin, Sequence: t.ids}
	pause := time.Duration(t.dice.Int64N(int64(400 * time.Millisecond)))
	times := 2 + t.dice.IntN(2)
	var nodes []*node
	var ops []*judge.Op
	for range times {
		n := t.node()
		if n == nil {
			return
		}
		o := t.op(s, judge.Take, 1)
		o.ID = fmt.Sprint(t.ids)
		nodes, ops = append(nodes, n), append(ops, o)
	}
	t.open.Go(func() {
		for i, o := range ops {
			if i > 0 {
				time.Sleep(pause)
			}
			n, one := nodes[i], ops[i:i+1]
			if i > 0 && !slices.Contains(t.cluster.asked(up, stopped), n) { // killed meanwhile
				n = t.anyUp()
			}
			if n == nil {
				return
			}
			if i > 0 && o.Start-ops[0].Start > time.Second {
				return // an owner remembers ids for two seconds, and a slow answer may take one
			}
			t.wait(
				"grpc",
				n.name,
				one,
				func(ctx context.Context) error { return n.call(ctx, one, false, id) },
			)
			if one[0].End-ops[0].Start > time.Second {
				return
			}
		}
	})
}

// hold reserves, and settles somewhat later through any node.
func (t *traffic) hold(s *slot) {
	n := t.node()
	if n == nil {
		return
	}
	units := int64(1)
	if s.limit == "held" {
		units = 1 + t.dice.Int64N(3)
	}
	o := t.op(s, judge.Hold, units)
	done := &judge.Op{
		Kind:  judge.Settle,
		Limit: s.limit,
		Key:   s.key,
		Held:  units,
		Mark:  judge.Unmarked,
	}
	if s.limit == "held" {
		done.Cost = t.dice.Int64N(units + 1)
	}
	door := []string{"http", "grpc"}[t.dice.IntN(2)]
	keep := time.Duration(t.dice.Int64N(int64(600 * time.Millisecond)))
	t.open.Go(func() {
		var id string
		t.wait(door, n.name, []*judge.Op{o}, func(ctx context.Context) (err error) {
			id, err = n.reserve(ctx, o, time.Minute)
			return err
		})
		if id == "" {
			return
		}
		time.Sleep(keep)
		other := t.anyUp()
		if done.Vague = o.Mark != judge.Unmarked; done.Vague {
			other = n // nobody else knows what it promised
			if !slices.Contains(t.cluster.asked(up), n) {
				return
			}
		}
		done.Hold = o.Number
		if n := other; n != nil {
			t.wait(
				door,
				n.name,
				[]*judge.Op{done},
				func(ctx context.Context) error { return n.settle(ctx, done, id) },
			)
		}
	})
}

func (t *traffic) anyUp() *node {
	if live := t.cluster.asked(up); len(live) > 0 {
		return live[rand.IntN(len(live))]
	}
	return nil
}

// charge takes from all kept keys, which nothing has been done to yet.
func (t *traffic) charge() {
	var ops []*judge.Op
	for i := range keptKeys {
		ops = append(
			ops,
			t.op(&slot{limit: "kept", key: fmt.Sprintf("kept-%d", i)}, judge.Take, 1+int64(i%5)),
		)
	}
	n := t.anyUp()
	t.wait(
		"grpc",
		n.name,
		ops,
		func(ctx context.Context) error { return n.call(ctx, ops, false, nil) },
	)
}

// lookAtAll reads each counter that there is.
func (t *traffic) lookAtAll() {
	var ops []*judge.Op
	flush := func() {
		n := t.anyUp()
		if n != nil && len(ops) > 0 {
			t.wait("peek", n.name, ops, func(ctx context.Context) error { return n.look(ctx, ops) })
		}
		ops = nil
	}
	for _, o := range t.known {
		if ops = append(ops, peekOf(o)); len(ops) == 200 {
			flush()
		}
	}
	flush()
}

func peekOf(o *judge.Op) *judge.Op {
	return &judge.Op{Kind: judge.Peek, Limit: o.Limit, Key: o.Key, Mark: judge.Unmarked}
}

// lookAtSome reads some counters that nobody may ask for any more, once a second: so it is known
// between which faults one has lost something.
func (t *traffic) lookAtSome() {
	const some = 30
	n := t.anyUp()
	if n == nil || len(t.known) == 0 {
		return
	}
	var ops []*judge.Op
	for range some {
		ops = append(ops, peekOf(t.known[rand.IntN(len(t.known))]))
	}
	t.send("peek", n, ops, func(ctx context.Context) error { return n.look(ctx, ops) })
}
