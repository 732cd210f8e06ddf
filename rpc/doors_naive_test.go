package rpc

import (
	"time"
)

// This file is the oracle of FuzzDoorRequests: counters as plain as they can be, which share no
// line with package limiter. Instants and periods are nanoseconds.

// counter is what is used of one key.
type counter interface {
	left(now int64) int64 // below 0: more is used than there is
	charge(now, n int64)  // n units more; below 0: given back, at most what is used
	copy() counter
}

// asked is what is asked of a counter.
type asked struct {
	cost          int64
	drain, report bool
}

// told is the answer.
type told struct {
	allowed bool
	left    int64 // after it
	before  int64 // what was left
	spent   int64 // units that were charged
}

// decide answers a, and charges c. drains: the limit refuses everything after a refusal, until its
// window is over.
func decide(c counter, drains bool, now int64, a asked) told {
	left := c.left(now)
	t := told{allowed: true, before: max(0, left)}
	switch {
	case a.cost > 0 && a.report:
		t.spent = min(a.cost, max(0, left))
	case a.cost > 0 && a.cost <= left:
		t.spent = a.cost
	case a.cost > 0:
		t.allowed = false
		if n := max(0, left); drains && left >= 0 {
			c.charge(now, n+1)
		} else if a.drain && n > 0 {
			c.charge(now, n)
		}
	case a.cost == 0:
		t.allowed = !drains || left >= 0
	default:
		c.charge(now, a.cost)
	}
	if t.spent > 0 {
		c.charge(now, t.spent)
	}
	t.left = max(0, c.left(now))
	return t
}

// lower is n, and no less than -most: what is given back beyond that changes nothing, and sums stay
// small.
func lower(n, most int64) int64 { return max(n, -most) }

// enough is more than any limit of the test has.
const enough = 1 << 20

// windowed counts in windows that open with the first charge, or at multiples of per.
type windowed struct {
	limit, per int64
	aligned    bool
	credits    bool // what is given back beyond what is used may be used on top
	drains     bool
	start, n   int64
}

func (w *windowed) used(now int64) int64 {
	if now >= w.start+w.per {
		return 0
	}
	return w.n
}

func (w *windowed) left(now int64) int64 { return w.limit - w.used(now) }

func (w *windowed) charge(now, n int64) {
	used := w.used(now)
	if used == 0 {
		switch {
		case w.aligned:
			w.start = now - now%w.per
		case w.credits:
			w.start = now - now%int64(time.Millisecond)
		default:
			w.start = now
		}
	}
	if w.drains && n < 0 && used == w.limit+1 {
		used = w.limit // the last unit stands for the refusal
	}
	if w.n = used + lower(n, enough); !w.credits {
		w.n = max(0, w.n)
	}
}

func (w *windowed) copy() counter { c := *w; return &c }

// weighted counts in windows at multiples of per; of the one before, a part counts.
type weighted struct {
	limit, per         int64
	number, this, last int64
}

func (w *weighted) pass(now int64) {
	switch number := now / w.per; {
	case number == w.number:
	case number == w.number+1:
		w.number, w.last, w.this = number, w.this, 0
	default:
		w.number, w.last, w.this = number, 0, 0
	}
}

func (w *weighted) left(now int64) int64 {
	w.pass(now)
	return w.limit - w.this - w.last*(w.per-now%w.per)/w.per
}

func (w *weighted) charge(now, n int64) {
	w.pass(now)
	w.this += lower(n, enough)
	if w.this < 0 { // the rest is given back of the window before
		w.last, w.this = max(0, w.last+w.this), 0
	}
}

func (w *weighted) copy() counter { c := *w; return &c }

// listed has the instant of each unit.
type listed struct {
	limit, per int64
	at         []int64
}

func (l *listed) pass(now int64) {
	for len(l.at) > 0 && l.at[0] <= now-l.per {
		l.at = l.at[1:]
	}
}

func (l *listed) left(now int64) int64 {
	l.pass(now)
	return l.limit - int64(len(l.at))
}

func (l *listed) charge(now, n int64) {
	l.pass(now)
	for ; n > 0; n-- {
		l.at = append(l.at, now)
	}
	l.at = l.at[:max(0, int64(len(l.at))+lower(n, enough))]
}

func (l *listed) copy() counter { return &listed{l.limit, l.per, append([]int64(nil), l.at...)} }

// stepped is a bucket that gets refill tokens after each per: at multiples of it, or from the first
// charge on, counted in ticks.
type stepped struct {
	limit, refill, per int64
	tick               int64 // 0: it is aligned
	begun              bool
	mark, missing      int64
	charged            int64 // when it was charged last
}

func (b *stepped) pass(now int64) {
	switch {
	case b.tick == 0 && b.missing == 0:
		b.mark = now - now%b.per
	case b.tick != 0 && !b.begun:
		b.mark = now - now%b.tick
	}
	if b.tick != 0 {
		now -= now % b.tick
	}
	for b.mark+b.per <= now {
		b.mark, b.missing = b.mark+b.per, max(0, b.missing-b.refill)
	}
}

func (b *stepped) left(now int64) int64 {
	b.pass(now)
	return b.limit - b.missing
}

func (b *stepped) charge(now, n int64) {
	if b.pass(now); n > 0 {
		b.begun, b.charged = true, now
	}
	b.missing = max(0, b.missing+lower(n, enough))
}

// forgettable reports whether nothing may be known of b any more, its phase included: an empty
// bucket would have been filled since it was charged.
func (b *stepped) forgettable(now int64) bool {
	return b.begun && b.tick != 0 && now-b.charged >= (b.limit+b.refill-1)/b.refill*b.per
}

func (b *stepped) copy() counter { c := *b; return &c }

// poured is a bucket into which a unit flows in each interval.
type poured struct {
	limit, interval int64
	full            int64 // when it is, or was
}

func (p *poured) left(now int64) int64 {
	return (p.limit*p.interval - max(0, p.full-now)) / p.interval
}

func (p *poured) charge(now, n int64) {
	p.full = max(now, max(now, p.full)+lower(n, enough)*p.interval)
}

func (p *poured) copy() counter { c := *p; return &c }

// spend is a charge that a door has admitted.
type spend struct{ at, units int64 }

// bound is the second oracle, which knows no algorithm: what doors admit of a key in any span of
// one length is at most so much.
type bound struct {
	span, most int64
	spends     []spend
}

// admit notes an admission, or what is given back, and reports whether it is within the bound.
func (b *bound) admit(now, units int64) bool {
	for len(b.spends) > 0 && b.spends[0].at <= now-b.span {
		b.spends = b.spends[1:]
	}
	if units > 0 {
		b.spends = append(b.spends, spend{now, units})
	}
	for units < 0 && len(b.spends) > 0 { // the latest are given back first
		last := &b.spends[len(b.spends)-1]
		if last.units += units; last.units > 0 {
			break
		}
		units, b.spends = last.units, b.spends[:len(b.spends)-1]
	}
	sum := int64(0)
	for _, s := range b.spends {
		sum += s.units
	}
	return sum <= b.most
}
