package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// dedupLasts is how long a node remembers the answer to an id.
const dedupLasts = 2 * time.Second

// patience is how long one history may take to judge.
const patience = 3 * time.Second

// count is what a counter may be at one instant of an explanation.
type count struct {
	used int64
	// owed may be charged from now on: of marked answers, and of requests without an answer.
	owed int64
	// forgiven may be forgotten while a fault lasts that forgets.
	forgiven int64
	// free may be released: of settlements without an answer and of sets that were refused.
	free int64
	// again may be charged, of settlements that no node knows but one that is away. Units
	// that are charged so wait, and may be released when that node is back.
	again, waits int64
	// which requests are charged in vain, and which can be no more (vain.go)
	vain, over uint64
}

// covers says that whatever d explains, c explains too.
func (c count) covers(d count) bool {
	return c.used == d.used && c.owed >= d.owed && c.forgiven >= d.forgiven && c.free >= d.free &&
		c.again >= d.again && c.waits >= d.waits && c.vain == d.vain && c.over == d.over
}

// to is how c comes to have used units. Released units are owed, and may be charged again.
func (c count) to(used int64) (list []count) {
	d := used - c.used
	switch {
	case d >= 0:
		for again := max(0, d-c.owed); again <= min(c.again, d); again++ {
			n := c
			n.used, n.owed = used, c.owed-d+again
			n.again, n.waits = c.again-again, c.waits+again
			list = append(list, n)
		}
	case d < 0 && -d <= c.forgiven+c.free:
		for free := max(0, -d-c.forgiven); free <= min(c.free, -d); free++ {
			n := c
			n.used, n.owed = used, c.owed-d
			n.free, n.forgiven = c.free-free, c.forgiven+d+free
			list = append(list, n)
		}
	}
	return list
}

// counts are the alternatives, none of which covers another.
type counts []count

func (cs counts) with(c count) counts {
	for _, x := range cs {
		if x.covers(c) {
			return cs
		}
	}
	return append(slices.DeleteFunc(cs, c.covers), c)
}

// A step is an op or an event of the model.
type step struct {
	op        *Op
	limit     int64
	uncertain bool // op may have been decided by a node's share, and the answer cannot say so
	// of an event:
	owe, forgive, release, again int64
	forgivable                   int64 // the most that may be forgiven from now on
	expires                      bool
	returns                      bool // a node is back
	lapse                        *lapse
}

func (s *step) next(all counts) (out counts) {
	for _, c := range all {
		if s.lapse != nil {
			for _, after := range s.lapse.with(c) {
				out = out.with(after)
			}
			continue
		}
		if s.op == nil {
			c.owed, c.forgiven, c.free = c.owed+s.owe, c.forgiven+s.forgive, c.free+s.release
			if c.again += s.again; s.returns {
				c.free, c.waits = c.free+c.waits, 0
			}
			late := max(0, c.forgiven-s.forgivable)
			if !s.expires {
				late = 0
			}
			c.forgiven -= late
			out = out.with(c)
			// forgotten in time, and nobody has looked since
			for n := int64(1); n <= min(late, c.used); n++ {
				forgot := c
				forgot.used, forgot.owed = c.used-n, c.owed+n
				out = out.with(forgot)
			}
			continue
		}
		used, change, ok := s.explained()
		if ok {
			for _, before := range c.to(used - change) {
				before.used = used
				out = out.with(before)
			}
		}
		if s.uncertain {
			c.owed += s.op.charged()
			out = out.with(c)
		}
	}
	return out
}

// explained is what the counter is after the op, by its answer, and what the op changed. ok: such
// an answer can be.
func (s *step) explained() (used, change int64, ok bool) {
	o := s.op
	used = s.limit - o.Remaining
	switch {
	case o.Refused: // it says what remains now
		return used, 0, used >= 0 && (o.Allowed || used+o.Cost > s.limit)
	case o.Kind == Settle:
		return used, o.Cost - o.Held, used >= 0
	case o.Kind == Peek:
		return used, 0, used >= 0
	case o.Allowed:
		return used, o.Cost, used >= o.Cost && used <= s.limit
	}
	return used, 0, used >= 0 && used+o.Cost > s.limit
}

// model explains a history by one counter.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return counts{{}} },
		Step: func(state, input, _ any) (bool, any) {
			next := input.(*step).next(state.(counts))
			return len(next) > 0, next
		},
		Equal: func(a, b any) bool { return slices.Equal(a.(counts), b.(counts)) },
	}
}

// explanation is the question whether one counter explains the ops of a key.
type explanation struct {
	key    *key
	ops    []*Op
	vague  map[*Op]bool // their answers are taken as not heard
	forget map[*Fault]int64
	spare  int64 // units that may be forgotten at any time
	twice  int64 // units that may be charged at any time
}

// steps are the ops with what the answers cannot tell as events.
func (e *explanation) steps() []porcupine.Operation {
	var all []porcupine.Operation
	add := func(s *step, from, to time.Duration) {
		s.limit = e.key.limit.Capacity
		all = append(all, porcupine.Operation{Input: s, Call: int64(from), Return: int64(to)})
	}
	if e.spare > 0 || e.twice > 0 {
		add(&step{forgive: e.spare, owe: e.twice}, -1, -1)
	}
	for _, o := range e.ops {
		switch {
		case e.vague[o], o.Failed != "", o.Vague, o.Mark == Marked:
			if s := e.doubt(o); s.owe+s.release+s.forgive > 0 {
				add(s, o.Start, o.Start)
			}
		case o.Source == "denied-cache" && e.key.inDoubt(o):
		default:
			if o.Refused {
				add(&step{owe: o.Cost, release: o.Cost}, o.Start, o.Start)
			}
			add(&step{op: o, uncertain: o.Mark == Unknown && e.key.inDoubt(o)}, o.Start, o.End)
		}
	}
	for _, f := range e.key.faults {
		// A settlement that is forgotten leaves the hold open: its units stay charged, or until the
		// node that knows of it is back and says so.
		if units := f.unsettled(e.key.limit, e.key.ops); units > 0 {
			if f.returns() {
				add(&step{again: units}, f.Start, f.Start)
				add(&step{returns: true}, cmp.Or(f.Undone, f.End-f.Slack), f.Settled+time.Second)
			} else {
				add(&step{owe: units}, f.Start, f.Start)
			}
		}
	}
	e.lapses(add)
	for f, units := range e.forget {
		if units > 0 {
			add(&step{forgive: units}, f.Start, f.Start)
			end := f.Settled + time.Second
			add(&step{expires: true, forgivable: e.spare + e.active(end)}, end, end)
		}
	}
	return all
}

// doubt is what an op may have done, although its answer does not say so.
func (e *explanation) doubt(o *Op) *step {
	s := &step{}
	switch {
	case o.Kind == Settle:
		s.owe, s.release = max(o.Cost, o.Held)-o.Held, max(o.Cost, o.Held)-o.Cost
		if o.Vague {
			s.owe, s.release = o.Cost, o.Held
		}
	case o.Kind == Peek:
	case o.Refused:
		s.owe, s.release = o.Cost, o.Cost
	case o.Failed != "" || o.Allowed || e.key.answerLost(o):
		s.owe = o.Cost
	}
	// A deciding node that says that it may have forgotten says how much. A share forgets nothing.
	if o.Mark == Marked && o.Failed == "" && o.Source != "fallback" && !e.vague[o] {
		s.forgive = o.Bound
		if o.Bound < 0 {
			s.forgive = e.key.limit.Capacity
		}
	}
	return s
}

// answerLost reports whether a share may have refused what the owner had let in: it was asked for
// before a fault struck, by which the owner's answer may have got lost.
func (k *key) answerLost(o *Op) bool {
	return o.Source == "fallback" && slices.ContainsFunc(k.faults, func(f *Fault) bool {
		return f.Marks && o.Start <= f.Struck && o.End >= f.Start
	})
}

// inDoubt: there is a fault in which a node may have decided from its share, and a cached denial
// may have outlived its reason by a second. Or all that knew the counter failed at once: then it is
// marked until a window has passed, and a door without a word for marks cannot say so. A door that
// has the word and does not use it says that the counter has outlived the fault. Where a machine
// that stalls, or a cut of the node that was asked, excuses a mark, it excuses that one is missing
// for want of a word.
func (k *key) inDoubt(o *Op) bool {
	if o.Mark == Unknown && (k.run.stalled(o) || slices.ContainsFunc(k.run.Faults,
		func(f *Fault) bool { return k.run.isCutOff(o, f) })) {
		return true
	}
	for _, f := range k.faults {
		if f.Marks && o.overlaps(f.Start, f.Settled+time.Second) {
			return true
		}
		if o.Mark == Unknown && f.forgetsAll() && f.Start <= o.End &&
			!k.outlived(f) {
			return true
		}
	}
	return false
}

// outlived reports whether an owner has decided for the key after a fault without a mark.
func (k *key) outlived(f *Fault) bool {
	return slices.ContainsFunc(k.ops, func(o *Op) bool {
		return o.Start > f.End && o.Failed == "" && o.Mark == Unmarked &&
			(o.Source == "owner" || o.Source == "forwarded")
	})
}

// active is what the faults forgive that are not over at an instant.
func (e *explanation) active(at time.Duration) (units int64) {
	for f, n := range e.forget {
		if f.Start <= at && f.Settled+time.Second > at {
			units += n
		}
	}
	return units
}

func (e *explanation) check() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model(), e.steps(), patience)
}

func (e *explanation) holds() bool { return e.check() != porcupine.Illegal }

// scaled is the explanation in which at most so many units are forgotten.
func (e *explanation) scaled(units int64) *explanation {
	own := *e
	own.forget = map[*Fault]int64{}
	for f, n := range e.forget {
		own.forget[f] = min(n, units)
	}
	return &own
}

// judgeCounts looks for an order in which one counter gives the answers of the key.
func judgeCounts(h *History, k *key, figures figures, v *Verdict) {
	e := &explanation{key: k, ops: k.ops, vague: map[*Op]bool{}, forget: map[*Fault]int64{}}
	var forgiven int64
	for _, f := range k.faults {
		n := f.forgivable(k.limit, k.ops)
		e.forget[f], forgiven = n, forgiven+n
		figures.of(f.Kind).Forgiven += n
	}
	switch e.scaled(0).check() {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		v.Undecided++
		return
	}
	if e.holds() {
		lost := least(forgiven, func(n int64) bool { return e.scaled(n).holds() })
		figures.of(k.cause()).Lost += lost
		return
	}
	v.add(e.contradiction(figures))
}

// contradiction says what is wrong with a history that has no explanation.
func (e *explanation) contradiction(figures figures) *Contradiction {
	k := e.key
	c := &Contradiction{Fault: k.cause(), Key: k.name}
	most, lost := k.limit.Capacity, int64(0)
	with := func(spare, twice int64) bool {
		own := *e
		own.spare, own.twice = spare, twice
		return own.holds()
	}
	switch {
	case with(most, 0):
		lost = least(most, func(n int64) bool { return with(n, 0) })
		c.Rule = "nothing is lost"
		c.Text = fmt.Sprintf("at least %d units were forgotten beyond those that its faults excuse",
			lost)
	case with(0, most):
		c.Rule = "charged once"
		c.Text = fmt.Sprintf("at least %d units were charged that no request asked for",
			least(most, func(n int64) bool { return with(0, n) }))
	default:
		c.Rule = "one counter"
		c.Text = "no order of the decisions explains the answers"
	}
	for f, n := range e.forget {
		if n > 0 {
			c.Text += fmt.Sprintf("; %s %v excuses %d units", f.Kind, f.Nodes, n)
		}
	}
	c.Ops = e.shrink()
	if c.At = around(c.Ops, k.faults); len(c.At) > 0 {
		// Of several faults between the answers one that may forget is the likelier cause.
		likely := max(0, slices.IndexFunc(c.At, func(f *Fault) bool { return f.Forgets }))
		c.Fault = c.At[likely].Kind
	}
	figures.of(c.Fault).Lost += lost
	return c
}

// least is the smallest n up to most that holds, if holds(most).
func least(most int64, holds func(int64) bool) int64 {
	low, high := int64(0), most
	for low < high {
		if middle := low + (high-low)/2; holds(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}
