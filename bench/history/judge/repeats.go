package judge

import "fmt"

// merge makes one op of the deliveries of each request: it is charged once, at some instant from
// its first question to its last answer. The answer is that of the last unmarked delivery.
func (k *key) merge(v *Verdict) (ops []*Op) {
	first := map[string]*Op{} // the merged op
	heard := map[string]*Op{} // the first delivery that was answered
	for _, o := range k.ops {
		if o.ID == "" {
			ops = append(ops, o)
			continue
		}
		one := first[o.ID]
		if one == nil {
			own := *o
			first[o.ID] = &own
			if o.Failed == "" && o.Mark == Unmarked {
				heard[o.ID] = o
			}
			ops = append(ops, &own)
			continue
		}
		if before := heard[o.ID]; before != nil && o.Failed == "" && o.Mark == Unmarked {
			k.compare(before, o, v)
		} else if o.Failed == "" && o.Mark == Unmarked {
			heard[o.ID] = o
		}
		ops = append(ops, k.join(one, o)...)
	}
	return ops
}

// join takes a further delivery into the op of its request. It returns ops that stand for what may
// have been charged beside it.
func (k *key) join(one, o *Op) (beside []*Op) {
	lost := k.forgetting(one, o)
	before := *one
	number, start, end := one.Number, one.Start, max(one.End, o.End)
	answered := func(x *Op) bool { return x.Failed == "" && x.Mark == Unmarked }
	if lost && answered(&before) && before.admitted() {
		// The first one may have been forgotten with its memory: the second is a request of its
		// own, or the answer that was remembered.
		again := *o
		again.ID, again.Failed = "", "a repeat across a fault"
		return []*Op{&again}
	}
	if !answered(&before) && answered(o) {
		*one = *o
	}
	one.Number, one.Start, one.End = number, start, end
	for _, x := range []*Op{&before, o} {
		if x.Mark == Marked && x.admitted() { // its share is charged by its own name
			own := *x
			own.ID = ""
			beside = append(beside, &own)
		}
	}
	if before.Mark == Marked && one.Mark == Marked {
		one.Failed = "marked each time" // all of it stands beside
	}
	return beside
}

// forgetting says whether a fault that may forget the request lies between two deliveries.
func (k *key) forgetting(a, b *Op) bool {
	for _, f := range k.faults {
		if f.Forgets && f.Start <= b.End && f.Settled >= a.Start {
			return true
		}
	}
	return false
}

// compare: an admitted request that is delivered again gets the same answer.
func (k *key) compare(a, b *Op, v *Verdict) {
	if !a.Allowed || k.forgetting(a, b) {
		return
	}
	if b.Allowed && b.Remaining == a.Remaining && b.End-a.Start < dedupLasts {
		return
	}
	if b.End-a.Start >= dedupLasts {
		return
	}
	v.add(&Contradiction{
		Rule: "charged once", Fault: k.cause(), Key: k.name, Ops: []*Op{a, b}, At: k.faults,
		Text: fmt.Sprintf("the answers to id %s differ", a.ID),
	})
}
