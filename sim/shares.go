package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// shares is what one process has admitted by itself while owners were away.
type shares struct {
	naive
	memories
	// in how many a limit was split; -1: not always in as many, so nothing is known
	parts map[naiveKey]int
	// how often the members had become more or fewer when the last visit began that has charged
	// something, and so has told in how many
	sized map[naiveKey]uint64
	// something was charged, also by a refusal: before that, many numbers explain the answers
	charged map[naiveKey]bool
	// how many units the share of a bucket had in each Per that was charged last: its state is
	// counted in parts that come so many to the nanosecond
	rates map[naiveKey]int64
}

func newShares() *shares {
	return &shares{
		naive{keys: make(map[naiveKey]*naiveState)},
		memories{},
		make(map[naiveKey]int),
		make(map[naiveKey]uint64),
		make(map[naiveKey]bool),
		make(map[naiveKey]int64),
	}
}

// repeated is what p has answered to this take or reservation before, if it says so again; of an
// atomic one, before it fell with others.
func (l *shares) repeated(p *process, it *cluster.Item, raw limiter.Decision,
	atomic bool,
) *limiter.Decision {
	a := l.answers.get(it.ID)
	if a == nil || it.Op != cluster.OpTake && it.Op != cluster.OpReserve ||
		a.at.Add(memory) <= p.now() {
		return nil
	}
	before := &a.decisions[0]
	if atomic && a.vague && raw.Allowed { // its no was a yes that fell with others, as shows now
		before.Allowed, a.vague = true, false
	}
	raw.Allowed = raw.Allowed || atomic && before.Allowed
	if *before != raw {
		return nil
	}
	return before
}

// split is in how many shares a node has split a limit, as far as it may, told by what it answers;
// 0 if no number explains that. Several may come to the same share of a small limit, and yet refill
// at different rates: then the decision itself tells.
func (l *shares) split(p *process, it *cluster.Item, s *limiter.Spec, d *cluster.Decision,
	raw limiter.Decision, atomic bool, may func(n int) bool,
) int {
	w := p.machine.world
	most := len(w.machines)
	fits := func(n int) bool { return may(n) && statesShare(s, n, d) }
	explains := func(n int) bool { return l.explains(p, share(s, n), it, raw, atomic) }
	// something was charged, and p has counted on as many members since then
	key := naiveKey{share(s, 1).Name, it.Key}
	same := !w.plan.moves() && w.faults.Deaths == 0 && l.sized[key] == p.stated.resized &&
		s.OnPartition != limiter.PartitionOpen && l.charged[key]
	if n := l.parts[key]; n > 0 && fits(n) && (same || explains(n)) {
		return n
	}
	first := 0
	for n := most; n > 0; n-- { // mostly they know all
		if fits(n) && explains(n) {
			return n
		}
		if fits(n) {
			first = max(first, n)
		}
	}
	return first
}

// statesShare reports whether d has the limit and the bound of one of n shares of s.
func statesShare(s *limiter.Spec, n int, d *cluster.Decision) bool {
	own := capacityOf(share(s, n))
	return own == d.Limit && (d.Bound == max(capacityOf(s), int64(n)*own) ||
		n == 1 && s.OnPartition == limiter.PartitionOpen)
}

// says reports whether the share s would decide so.
func (l *shares) says(p *process, s *limiter.Spec, it *cluster.Item, raw limiter.Decision) bool {
	if a := l.answers.get(it.ID); a != nil && a.at.Add(memory) > p.now() &&
		it.Op != cluster.OpPeek {
		return a.decisions[0] == raw
	}
	st, _ := l.under(s, it.Key)
	return soon(st.peek(p.now(), s, it.Cost)) == raw ||
		st != nil && st.forgettable(p.now(), s) &&
			soon(new(naiveState).take(p.now(), s, it.Cost)) == raw
}

// explains reports whether the share s would decide so, or would have, before the take fell with
// others.
func (l *shares) explains(p *process, s *limiter.Spec, it *cluster.Item, raw limiter.Decision,
	atomic bool,
) bool {
	yes := raw
	yes.Allowed = true
	return l.says(p, s, it, raw) || atomic && l.says(p, s, it, yes)
}

// decide decides from the share s, one of n, where p answered got, and its members had become more
// or fewer so often when it was asked. charged is false if it is a repeat, or nothing that charges.
func (l *shares) decide(p *process, s *limiter.Spec, n int, it *cluster.Item,
	got limiter.Decision, resized uint64,
) (d limiter.Decision, charged bool) {
	now := p.now()
	key := naiveKey{s.Name, it.Key}
	if l.splitsAnew(s, key, n) {
		n = -1
	}
	a := l.answers.get(it.ID)
	again := a != nil && a.at.Add(memory) > now && it.Op != cluster.OpPeek
	if l.parts[key] = n; n <= 0 {
		if !(again && a.decisions[0] == got) {
			l.believe(p, it, got, a)
		}
		return got, it.Op == cluster.OpTake
	}
	if again {
		return a.decisions[0], false
	}
	l.mayForget(now, s, it, got)
	st, _ := l.under(s, it.Key)
	if it.Op == cluster.OpPeek {
		return soon(st.peek(now, s, it.Cost)), false
	}
	if l.rates[key] = s.Limit; st != nil {
		l.keys[key] = st
	}
	d = soon(l.take(now, s, it.Key, it.Cost))
	if it.Cost > 0 && (d.Allowed || refusalsCount(s)) {
		l.charged[key], l.sized[key] = true, resized
	}
	if it.ID != (cluster.ID{}) {
		l.add(a, it.ID, p, p.machine.world.now, []limiter.Decision{d}, d.Allowed)
	}
	return d, true
}

// pours reports whether s has a bucket that is refilled all the time.
func pours(s *limiter.Spec) bool {
	return s.Algorithm == limiter.GCRA || s.Algorithm == limiter.LeakyBucket
}

// under is what the share s has of a key, and whether that is known for all that comes. Of a bucket
// that is refilled all the time a node remembers nothing but when it will be full. That stays as it
// is when the limit is split in more or fewer: so many units are missing as the new share refills
// by then. A part of a nanosecond is kept or rounded up, as the shares in between had it.
func (l *shares) under(s *limiter.Spec, key string) (st *naiveState, known bool) {
	at := naiveKey{s.Name, key}
	st = l.keys[at]
	rate := l.rates[at]
	if st == nil || rate == s.Limit || !pours(s) {
		return st, true
	}
	until, part := st.used/rate, st.used%rate
	known = part == 0
	if !known && int64(s.Per)%s.Limit == 0 { // this share has whole nanoseconds
		until, part = until+1, 0
	}
	c := *st
	c.used = until*s.Limit + (part*s.Limit+rate-1)/rate
	return &c, known
}

// splitsAnew reports whether the key under the share s, now one of n, may be charged to another
// count than before: of a bucket of tokens each share has a state of its own, and several may look
// alike. What a share makes of the state that another one has left may not be known either.
func (l *shares) splitsAnew(s *limiter.Spec, key naiveKey, n int) bool {
	if s.Algorithm == limiter.TokenBucket && s.OnPartition == limiter.PartitionOpen {
		return true
	}
	if pours(s) && n > 0 && l.parts[key] > 0 {
		_, known := l.under(s, key.key)
		return !known
	}
	before, known := l.parts[key]
	return known && before != n && (before <= 0 || l.charged[key])
}

// soon is what a node says where its share decides so: a client that is denied may ask again within
// a second, for the owner may be there by then.
func soon(d limiter.Decision) limiter.Decision {
	if !d.Allowed && (d.RetryAfter == limiter.Never || d.RetryAfter > time.Second) {
		d.RetryAfter = time.Second
	}
	return d
}

// mayForget resets a key of s that p may have forgotten, if got shows that it has.
func (l *shares) mayForget(now limiter.Instant, s *limiter.Spec, it *cluster.Item,
	got limiter.Decision,
) {
	if st := l.keys[naiveKey{s.Name, it.Key}]; st != nil && st.forgettable(now, s) &&
		st.peek(now, s, it.Cost).ResetAfter != got.ResetAfter {
		l.reset(s, it.Key)
	}
}

// believe notes what p has answered from a share of which nothing is known: that it will say so
// again is known all the same. a is its answer under this ID before, if any.
func (l *shares) believe(p *process, it *cluster.Item, got limiter.Decision, a *answered) {
	if (it.Op == cluster.OpTake || it.Op == cluster.OpReserve) && it.ID != (cluster.ID{}) {
		l.add(a, it.ID, p, p.machine.world.now, []limiter.Decision{got}, got.Allowed)
		l.answers.get(it.ID).vague = true
	}
}

// watches reports whether s decides without ever denying.
func watches(s *limiter.Spec) bool { return s.DryRun || s.OnDeny == limiter.DenyShadow }

// shareSuffix tells the name of a share from its limit's.
const shareSuffix = " (share)"

// share is what each of n nodes may admit by itself of a limit while the owner is away.
func share(l *limiter.Spec, n int) *limiter.Spec {
	s := *l
	s.Name += shareSuffix
	s.Limit = max(1, s.Limit/int64(n))
	switch s.Algorithm {
	case limiter.GCRA:
		s.Burst = max(1, s.Burst/int64(n))
	case limiter.LeakyBucket:
		s.Burst = max(1, (s.Burst+1)/int64(n)) - 1
	case limiter.TokenBucket:
		s.Refill = max(1, s.Refill/int64(n))
	}
	return &s
}
