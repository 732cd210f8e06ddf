package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// memory is how long a node must recognise a take that it has answered.
const memory = 2 * time.Second

// ledger is what one process has to remember of what it was asked: the counters of the reference, and the answers of
// the last two seconds by ID. The judge keeps it beside the node, in the order in which the node decides.
type ledger struct {
	naive
	answers map[cluster.ID]answered
	order   []cluster.ID // of answers, oldest first
}

type answered struct {
	at        limiter.Instant
	decisions []limiter.Decision
}

func newLedger() *ledger {
	return &ledger{naive: naive{keys: make(map[naiveKey]*naiveState)}, answers: make(map[cluster.ID]answered)}
}

// asked is one item as an owner hears it.
type asked struct {
	spec *limiter.Spec
	key  string
	cost int64
	op   cluster.Op
	id   cluster.ID
}

// one decides a single item. charged is false if it is a repeat, or nothing that charges.
func (l *ledger) one(now limiter.Instant, a asked) (d limiter.Decision, charged bool) {
	if a.op == cluster.OpPeek {
		return l.peek(now, a.spec, a.key, a.cost), false
	}
	ds, charged := l.once(now, a.id, func() []limiter.Decision {
		if a.op == cluster.OpReset {
			l.reset(a.spec, a.key)
			return []limiter.Decision{l.peek(now, a.spec, a.key, 0)}
		}
		return []limiter.Decision{l.take(now, a.spec, a.key, a.cost)}
	})
	return ds[0], charged
}

// all decides items that stand or fall together. Limits that only watch have no say in it: they are charged if the
// others are.
func (l *ledger) all(now limiter.Instant, items []asked) (ds []limiter.Decision, charged bool) {
	return l.once(now, items[0].id, func() []limiter.Decision {
		before := make(map[naiveKey]*naiveState)
		ds := make([]limiter.Decision, len(items))
		for i, it := range items {
			if watches(it.spec) {
				continue
			}
			key := naiveKey{it.spec.Name, it.key}
			if _, twice := before[key]; !twice {
				before[key] = l.keys[key].copy()
			}
			ds[i] = l.take(now, it.spec, it.key, it.cost)
		}
		fallen := falls(items, ds)
		if fallen {
			for key, state := range before {
				l.keys[key] = state
			}
		}
		for i, it := range items {
			switch {
			case !watches(it.spec):
			case fallen:
				ds[i] = l.peek(now, it.spec, it.key, it.cost)
			default:
				ds[i] = l.take(now, it.spec, it.key, it.cost)
			}
		}
		return ds
	})
}

// watches reports whether s decides without ever denying.
func watches(s *limiter.Spec) bool { return s.DryRun || s.OnDeny == limiter.DenyShadow }

func (l *ledger) once(now limiter.Instant, id cluster.ID, take func() []limiter.Decision) (ds []limiter.Decision, charged bool) {
	if id == (cluster.ID{}) {
		return take(), true
	}
	for len(l.order) > 0 && l.answers[l.order[0]].at.Add(memory) <= now {
		delete(l.answers, l.order[0])
		l.order = l.order[1:]
	}
	if a, ok := l.answers[id]; ok {
		return a.decisions, false
	}
	ds = take()
	l.answers[id] = answered{now, ds}
	l.order = append(l.order, id)
	return ds, true
}

// share is what each of n nodes may admit by itself of a limit whose owner is away.
func share(l *limiter.Spec, n int) *limiter.Spec {
	s := *l
	s.Name += " (share)"
	s.Limit = max(1, s.Limit/int64(n))
	if s.Algorithm == limiter.GCRA {
		s.Burst = max(1, s.Burst/int64(n))
	}
	return &s
}
