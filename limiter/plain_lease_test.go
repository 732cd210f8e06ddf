package limiter

import (
	"math/rand/v2"
	"testing"
	"time"
)

// plainLease is the holder's side of a lease in plain words: what is lent, what requests have cost
// in this tick and before, and what the deciding node has said last.
type plainLease struct {
	size, left   int64
	until, quiet Instant
	now          []int64 // the costs of this tick
	before       int     // how many requests there were in the last one
	lately       int64   // units in a tick; each quiet tick halves them
	remaining    int64
	resetAt      Instant
	denied       *plainDenial
}

// plainDenial is a denial because of what others have reserved: of a cost, until another request is
// let through to ask, and at the latest until what was said.
type plainDenial struct {
	cost        int64
	until, ends Instant
}

func (p *plainLease) asked() (sum int64) {
	for _, cost := range p.now {
		sum += cost
	}
	return sum
}

func (p *plainLease) decide(now Instant, cost, capacity int64) (d Decision, decided, ask bool) {
	p.now = append(p.now, cost)
	d = Decision{
		Limit: capacity, RetryAfter: Never, ResetAfter: max(0, time.Duration(p.resetAt-now)),
	}
	if cost <= p.left && now < p.until { // it is spent, and renewed when a fifth is left
		p.left -= cost
		d.Allowed, d.Remaining = true, min(capacity, p.remaining+p.left)
		return d, true, now >= p.quiet && p.left*100 <= p.size*20
	}
	if p.denied != nil && now < p.denied.ends && cost == p.denied.cost {
		if now < p.denied.until {
			d.Remaining = min(p.remaining, cost-1)
			d.RetryAfter = max(1, time.Duration(p.denied.ends-now))
			return d, true, false
		}
		p.denied.until = now.Add(5 * time.Millisecond)
	}
	return d, false, now >= p.quiet && len(p.now)+p.before >= 4
}

func (p *plainLease) heard(sent Instant, cost int64, d Decision) {
	p.remaining, p.resetAt = d.Remaining, sent.Add(d.ResetAfter)
	if d.Allowed {
		p.denied = nil
	} else if d.RetryAfter >= 0 && d.Hold == HoldInTheWay {
		p.denied = &plainDenial{
			cost, sent.Add(min(d.RetryAfter, 5*time.Millisecond)), sent.Add(d.RetryAfter),
		}
	}
}

// leasePair is a lease and the same in plain words.
type leasePair struct {
	t     *testing.T
	draw  *rand.Rand
	now   Instant
	l     Lease
	plain plainLease
}

func (p *leasePair) step() {
	sent := p.now.Add(-time.Duration(p.draw.IntN(5)) * time.Millisecond)
	d := Decision{
		Allowed: p.draw.IntN(2) == 0, Remaining: p.draw.Int64N(30),
		ResetAfter: time.Duration(p.draw.IntN(9)) * time.Millisecond,
		RetryAfter: oneOf(p.draw, Never, 0, time.Millisecond, 7*time.Millisecond),
		Hold:       oneOf(p.draw, HoldInTheWay, HoldInTheWay, HoldNone),
	}
	switch cost := 1 + p.draw.Int64N(4); p.draw.IntN(12) {
	case 0:
		p.l.Heard(sent, cost, &d)
		p.plain.heard(sent, cost, d)
	case 1:
		units := p.draw.Int64N(40)
		p.l.Granted(sent, units, &d)
		p.plain.size, p.plain.left, p.plain.until = units, units, sent.Add(time.Second)
		p.plain.remaining, p.plain.resetAt = d.Remaining, sent.Add(d.ResetAfter)
	case 2:
		p.l.NotGranted(sent)
		p.plain.quiet = sent.Add(20 * time.Millisecond)
	case 3:
		p.l.Tick()
		p.plain.lately = max(p.plain.asked(), p.plain.lately/2)
		p.plain.before, p.plain.now = len(p.plain.now), nil
	case 4:
		p.l.FreeAgain()
		p.plain.denied = nil
	case 5, 6:
		p.now = p.now.Add(oneOf(p.draw, time.Millisecond, 2*time.Millisecond, 5*time.Millisecond,
			20*time.Millisecond, 700*time.Millisecond, time.Second, 1))
	default:
		capacity := 1 + p.draw.Int64N(40)
		var got Decision
		decided, ask := p.l.Decide(p.now, cost, capacity, &got)
		want, shouldDecide, shouldAsk := p.plain.decide(p.now, cost, capacity)
		if decided != shouldDecide || ask != shouldAsk || got != want {
			p.t.Fatalf("%d of %d: %+v, %t, %t; want %+v, %t, %t", cost, capacity, got, decided, ask,
				want, shouldDecide, shouldAsk)
		}
	}
}

// Promise: a lease decides, asks and ends as plainLease does.
func TestLeasesInPlainWords(t *testing.T) {
	for seed := range uint64(1000) {
		p := &leasePair{t: t, draw: rand.New(rand.NewPCG(seed, 1)), now: Instant(1e18)}
		for range 80 {
			p.step()
			asked, lately := p.plain.asked(), p.plain.lately
			if want := max(8, 2*max(asked, lately)); p.l.Want() != want {
				t.Fatalf("seed %d: %d are wanted, want %d", seed, p.l.Want(), want)
			}
			if over := p.now >= p.plain.until; p.l.Ended(p.now) != (over || asked == 0) ||
				p.l.Ends(p.now) != (p.now >= p.plain.until.Add(-300*time.Millisecond)) ||
				p.l.Forgotten() != (asked == 0 && lately == 0) ||
				p.l.Units != p.plain.left || p.l.Size != p.plain.size {
				t.Fatalf("seed %d: %+v, want %+v", seed, p.l, p.plain)
			}
		}
	}
}
