package sim

import (
	"math/rand/v2"
	"testing"
)

// The window folds what is over into one number. Here all pairs are tried, as its definition says.
func TestWindowFindsTheWorstSpan(t *testing.T) {
	type take struct {
		asked    int64 // when
		admitted int64
		number   int
	}
	const rate = 3
	worst := func(takes []take, now int64) int64 {
		excess := int64(-1 << 60)
		for _, first := range takes {
			sum := int64(0)
			for _, k := range takes {
				if k.asked >= first.asked {
					sum += k.admitted
				}
			}
			excess = max(excess, sum-rate*(now-first.asked))
		}
		return excess
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		w, takes, open, now := newWindow(), []take(nil), []int(nil), int64(0)
		for range 40 {
			now += r.Int64N(4)
			if r.IntN(2) == 0 || len(open) == 0 {
				takes = append(takes, take{asked: now, number: w.ask(rate * now)})
				open = append(open, len(takes)-1)
				continue
			}
			i := r.IntN(len(open))
			k := &takes[open[i]]
			open = append(open[:i], open[i+1:]...)
			if amount := r.Int64N(6); amount > 0 {
				w.admit(k.number, amount)
				k.admitted = amount
				if got, want := w.excess(0, rate*now), worst(takes, now); got != want {
					t.Fatalf("excess %d, but the worst span has %d", got, want)
				}
			}
			w.answer(k.number)
		}
		for _, i := range open {
			w.answer(takes[i].number)
		}
		if len(w.open) != 0 {
			t.Fatalf("%d questions are kept when all are answered", len(w.open))
		}
	}
}

// A refund gives room to what is asked while it may happen and afterwards to nobody: what it gave
// back is in the bucket by then, and the bucket is no larger than its capacity.
func TestWindowCountsRefundsThatOverlap(t *testing.T) {
	const capacity = 5
	w := newWindow()
	early := w.ask(0)
	w.begun += 2
	w.admit(early, 7)
	if over := w.excess(capacity, 0); over != 0 {
		t.Errorf("7 of 5 while 2 come back: excess %d, want 0", over)
	}
	w.returned += 2
	w.answer(early)
	late := w.ask(0)
	w.admit(late, 6)
	if over := w.excess(capacity, 0); over < 1 {
		t.Errorf("6 of 5 after the refund: excess %d, want at least 1", over)
	}
}

func TestForgivenIsGrantedOnce(t *testing.T) {
	w := newWindow()
	w.admit(w.ask(0), 5)
	w.forgive(5)
	w.admit(w.ask(0), 5)
	if over := w.excess(5, 0); over != 0 {
		t.Errorf("5 before a crash and 5 after it: excess %d, want 0", over)
	}
	w.admit(w.ask(0), 1)
	if over := w.excess(5, 0); over != 1 {
		t.Errorf("6 after the crash: excess %d, want 1", over)
	}
}
