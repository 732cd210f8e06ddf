// Package cluster lets many nodes keep one limit. Follow one check:
//
//  1. A client's door (package rpc) hands Node.Check a Request. Each item names a limit and a key.
//     The node looks the limit up, and its override for this key, hashes the key once, and takes
//     the current View: the members and their partitions. One View serves the request from
//     beginning to end.
//  2. If the node holds the key, it decides from memory (holder.go, limiter.Table) and is done. If
//     another node does, it asks that one (forward.go): all owners of a batch at once, through
//     Network.Call. It does not ask for what the owner has denied until the denial ends (local.go).
//  3. The owner hears the Ask at Node.Deliver. It serves a key only if it holds it (partition.go).
//     Otherwise it answers NotOwner with the holder that it knows. The asker goes there, or waits a
//     moment for a handover to be done.
//  4. Every forwarded take has an ID that its owner remembers for two seconds, so a repeat is
//     charged once. If no holder answers, one function (shares.go) does what the limit says: share,
//     allow or deny. It marks the decision as degraded, with the bound in force.
//
// A Node has three doors: Check (a client asks), Deliver (a peer speaks), and the timers that it
// starts. It reaches the world through two ports (ports.go): a Clock and a Network. Both gRPC and
// the simulator supply them, and run the same node. So this package starts no goroutine, reads no
// clock of its own, and waits nowhere but in Network.
//
// Inside, a Node only wires its parts. DESIGN.md lists them: what each owns, and in which file.
package cluster

import (
	"errors"
	"slices"
	"time"

	"penstock/limiter"
)

// Bounds of a request. What exceeds them is an InputError and charges nothing.
const (
	MaxItems = 1000
	MaxKey   = 1024 // bytes
	MinKey   = 1
)

// DefaultDeadline is how long a request without a deadline may take.
const DefaultDeadline = time.Second

// Request is what a client asks at once.
type Request struct {
	Items    []Item          // 1 … MaxItems
	Atomic   bool            // all items are admitted, or none is charged
	Deadline limiter.Instant // on this node's clock; 0 means DefaultDeadline from now
	Trace    Trace           // of the client, if it is kept
	// HungUp reports whether the client waits no more: what is undecided then is not charged. nil:
	// that is not known.
	HungUp func() bool
}

// Item is one limit applied to one key.
type Item struct {
	Limit  string         // name of a limit that the node has; or
	Inline *limiter.Limit // a limit that the client brings along
	Ruled  *limiter.Limit // set by Node.Match: what Limit meant when the rules were made
	// MinKey … MaxKey bytes, any bytes; may be borrowed: nothing keeps it after Check returns
	Key string
	// the key's plan, of a named limit that has it (limiter.Override.Plan); "": none is named
	Plan  string
	Cost  int64 // 0 reports the state, negative gives back
	Op    Op
	ID    ID         // drawn by a client that may repeat the request; zero: the node draws one
	Terms            // most ask for nothing else
	Hold  *HoldTerms // OpReserve, OpSettle, OpExtend
}

// Source says which node took a decision, and from what.
type Source uint8

const (
	SourceOwner     Source = iota // this node owns the key
	SourceForwarded               // the owner, asked by this node
	SourceFallback                // no holder answered: the limit's on_error
	// this node, for a replicated limit, or for a key that its limit does not count
	// (Spec.Unlimited)
	SourceReplica
	SourceLease  // this node, from units that the owner has set aside for it
	SourceDenied // this node: the owner has just said no, and until when
)

func (s Source) String() string {
	switch s {
	case SourceOwner:
		return "owner"
	case SourceForwarded:
		return "forwarded"
	case SourceReplica:
		return "replica"
	case SourceLease:
		return "lease"
	case SourceDenied:
		return "denied-cache"
	}
	return "fallback"
}

// Unbounded is the Bound of a decision that admits without counting.
const Unbounded int64 = -1

// Decision is the answer to one Item.
type Decision struct {
	limiter.Decision
	// the limit that decided: the one that was asked for, or an override of it
	Rule     *limiter.Limit
	Owner    string // id of the node that owns the key, as far as known
	Source   Source
	Degraded bool // taken under less than the full promise
	// if Degraded or of a replica: the most the whole cluster may admit beyond the limit meanwhile,
	// or Unbounded
	Bound  int64
	Shadow bool // the limit refused, but says so only here: dry_run, or on_deny: shadow

	// ID is that under which the item was decided: its own, or one that the node has drawn. Of a
	// reservation it names the hold.
	ID ID

	// Over: the limit refuses and the request goes on, marked as Rule.Answers says (on_deny: tag,
	// deprioritize).
	Over bool

	along bool // the limit does not refuse: others of an atomic request do (unite)
}

// Check decides every item of r into out, which must be as long as r.Items. It changes nothing of
// r, and keeps nothing of it. It returns an error only if nothing was decided and nothing charged:
// an *InputError, an *UnknownLimitError, ErrNoView, ErrExpired or ErrHungUp. A denial is an answer,
// never an error.
func (n *Node) Check(r *Request, out []Decision) error {
	now := n.clock.Now()
	if r.HungUp != nil && n.still.mayBeOld(now) {
		if n.isOver(r.Deadline, r.HungUp) {
			return ErrHungUp
		}
		now = n.clock.Now()
	}
	if n.pulse.idle.Load() {
		n.pulse.wakeFor()
	}
	view, under := n.view.Load(), n.right.tenure(now)
	var one [1]flight
	b := batch{
		items: one[:], deadline: r.Deadline, atomic: r.Atomic, trace: r.Trace, hungUp: r.HungUp,
	}
	if k := min(len(r.Items), MaxItems); k != 1 {
		lent := flights.Get().(*[]flight)
		*lent = slices.Grow((*lent)[:0], k)[:k]
		b.items = *lent
		defer func() {
			clear(*lent)
			flights.Put(lent)
		}()
	}
	trees, err := n.admit(now, view, r, &b)
	if err != nil {
		n.stats.Refused.Add(1)
		return err
	}
	if trees != nil {
		whole := batch{deadline: b.deadline, trace: r.Trace, hungUp: r.HungUp}
		return checkTrees(n, now, &whole, trees, out)
	}
	if b.atomic && len(b.items) > 1 {
		if err := n.multiOwner.checkAtomic(now, view, &b, out); err != nil {
			n.stats.Refused.Add(1)
			return err
		}
	} else {
		n.forwarder.checkEach(now, view, &b, out)
	}
	finish(n, now, under, &b, out)
	return nil
}

// finish waits for what has to be known elsewhere before b, which is decided, is answered, and has
// the answer be counted and seen.
func finish(n *Node, now limiter.Instant, under tenure, b *batch, out []Decision) {
	n.confirms.confirmOwn(b.deadline, b.items, out)
	if !b.multiOwner {
		n.notices.tell(b.deadline, b.items, out)
	}
	n.right.markLate(under, b.items, out)
	n.conclude(now, b, out)
	if n.observer != nil {
		n.show(now, b, out)
	}
	offerCandidates(n, now, b, out)
}

func (fw *forwarder) checkEach(now limiter.Instant, view *route, r *batch, out []Decision) {
	var few [4]int
	away := few[:0] // items that this node does not decide
	for i := range r.items {
		if !fw.decideHere(now, &r.items[i], &out[i]) {
			if len(away) == cap(away) {
				away = slices.Grow(away, len(r.items)-i)
			}
			away = append(away, i)
		}
	}
	if len(away) > 0 {
		fw.forward(now, view, r, away, out)
	}
}

// decideHere decides on an item if this node holds its key, and reports whether it does. If not,
// out is nothing.
func (fw *forwarder) decideHere(now limiter.Instant, it *flight, out *Decision) bool {
	if it.Op > OpReserve && fw.debts.atPromise(now, it, out) {
		return true
	}
	if it.Limit.Consistency == limiter.Replicated && !fw.holder.isElsewhere(it) {
		fw.holder.decideReplica(now, it, out)
		return true
	}
	if !fw.holder.decides(now, it.hash) {
		if it.Limit.Unlimited { // nothing is counted, so no node needs to be asked
			*out = Decision{Owner: fw.id, Source: SourceReplica}
			fw.holder.decide(now, it, &out.Decision)
			return true
		}
		return fw.local.decideAway(now, it, out)
	}
	*out = Decision{}
	if fw.holder.decide(now, it, &out.Decision); out.Closed { // the key has just been given away
		*out = Decision{}
		return false
	}
	fw.holder.sign(now, it, out)
	return true
}

// admit checks r, looks its limits up and hashes its keys, into b. If limits have parents, it
// returns the runs that are decided in place of b.
func (n *Node) admit(
	now limiter.Instant, view *route, r *Request, b *batch,
) (trees []treeRun, err error) {
	if view == nil {
		return nil, ErrNoView
	}
	if b.deadline == 0 {
		b.deadline = now.Add(DefaultDeadline)
	}
	if now >= b.deadline {
		return nil, ErrExpired
	}
	if len(r.Items) == 0 || len(r.Items) > MaxItems {
		return nil, &InputError{Field: "items", Reason: itemsReason(len(r.Items))}
	}
	limits, grown := *n.inForce.Load(), false
	for i := range r.Items {
		it := &b.items[i]
		if err := it.admit(i, &r.Items[i], limits); err != nil {
			return nil, n.orEarly(err)
		}
		// here or not: asking costs less than looking
		n.holder.table.Expect(it.Limit, it.Key, it.hash)
		if it.Op.holds() {
			if err := n.admitHold(i, it); err != nil {
				return nil, err
			}
		}
		grown = grown || it.child
	}
	if grown {
		return growRuns(limits, r, b.items)
	}
	return nil, nil
}

// admit makes it the flight of the i-th item of a request, under one of the limits in force.
func (it *flight) admit(i int, asked *Item, limits map[string]limitInForce) error {
	if len(asked.Key) < MinKey {
		return inputErrorf(i, "key", "is empty; give %d to %d bytes", MinKey, MaxKey)
	}
	if len(asked.Key) > MaxKey {
		return inputErrorf(i, "key", "has %d bytes; at most %d are accepted", len(asked.Key),
			MaxKey)
	}
	inForce := limits[asked.Limit]
	named := inForce.limit
	if asked.Ruled != nil {
		named = asked.Ruled
	}
	it.tally = inForce.tally
	switch {
	case asked.Inline == nil && asked.Limit == "":
		return inputErrorf(i, "limit", "is missing; name a limit or send one inline")
	case asked.Inline == nil && named == nil:
		return &UnknownLimitError{Item: i, Name: asked.Limit}
	case asked.Inline != nil && limits[asked.Inline.Name].limit != nil:
		return inputErrorf(i, "inline.name", "%q is a limit of this cluster; "+
			"an inline limit needs another name", asked.Inline.Name)
	}
	if err := it.under(i, named, asked); err != nil {
		return err
	}
	it.child = it.Limit.Parent != "" && asked.Op != OpReset
	it.Key, it.Cost, it.Op, it.Hold = asked.Key, asked.Cost, asked.Op, asked.Hold
	it.ID = ID{Origin: asked.ID.Origin &^ nodeOrigin, Sequence: asked.ID.Sequence}
	it.hash = limiter.Hash(asked.Key)
	if asked.Terms != (Terms{}) {
		it.Terms = asked.Terms
		err := it.accepted(i)
		if !it.Limit.Delays() && it.Limit.Algorithm != limiter.LeakyBucket {
			it.Bounded, it.MaxDelay = false, 0 // so it is a take like others: there is no delay
		}
		return err
	}
	return nil
}

// under puts the item, the i-th, under what named, or its inline limit, is for its plan and key.
func (it *flight) under(i int, named *limiter.Limit, asked *Item) (err error) {
	if asked.Inline != nil {
		named, it.tally = asked.Inline, nil
	}
	if it.Limit, err = named.Under(asked.Plan, asked.Key); err == nil {
		return nil
	}
	var spec *limiter.SpecError
	if errors.As(err, &spec) {
		return inputErrorf(i, spec.Field, "%s", spec.Reason)
	}
	return err
}

// accepted says what the limit of the item, which is the i-th, does not have of what is asked.
func (it *flight) accepted(i int) error {
	r := it.of(it.Cost)
	err := it.Limit.Accepts(&r)
	if err == nil {
		return nil
	}
	var spec *limiter.SpecError
	if errors.As(err, &spec) {
		return inputErrorf(i, spec.Field, "%s", spec.Reason)
	}
	return err
}

// peeks reports whether the item asks for the state of its key and charges nothing.
func (it *flight) peeks() bool {
	return it.Op == OpPeek || it.Op == OpTake && it.Cost == 0 && !it.Report
}

// conclude turns refusals into what the limit wants the caller to hear, and counts.
func (n *Node) conclude(now limiter.Instant, r *batch, out []Decision) {
	var run tallyRun
	degraded := uint64(0)
	for i := range out {
		d, it := &out[i], &r.items[i]
		d.Rule, d.ID = it.Limit, it.ID
		checked := it.Op == OpTake || it.Op == OpReserve
		if checked && (!d.Allowed || d.Delay > 0) {
			if d.tell(now, it.hash); it.Bounded && d.overruled() {
				d.Delay = 0 // that of the refusal
			}
		}
		if !it.spared {
			run.add(n.stats.tallyOf(it), it.cellOf(d, checked))
		}
		if d.Degraded {
			degraded++
			n.stats.tallyOf(it).add(reasonCell+int(n.parts.reasonOf(now, it, d)), 1)
		}
	}
	run.flush()
	if degraded > 0 {
		n.stats.Degraded.Add(degraded)
		n.debts.owe(now, r, out)
	}
}
