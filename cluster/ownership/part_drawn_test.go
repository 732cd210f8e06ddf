package ownership

import (
	"cmp"
	"testing"
)

// Promise: a partition is held by one way alone, and what a boot is sure of is what it says: all
// events are tried on all states of a few epochs and boots.
func TestPartsMoveAsDrawn(t *testing.T) {
	const other, third = Boot(2), Boot(3)
	keeps := func(rule) bool { return true }
	var parts []Part
	for _, kind := range []Kind{None, Copied, Claiming, Held, Giving} {
		for _, epoch := range []uint64{4, 5, 6} {
			for _, bound := range []uint64{0, 4, 5, 6} {
				for _, c := range []Copy{
					{}, {Of: other, Epoch: 5, Whole: true}, {Of: third, Epoch: 4},
				} {
					p := Part{Kind: kind, Epoch: epoch, Bound: bound, Copy: c}
					if kind == Giving {
						p.To = other
					}
					if kind == None || kind == Copied {
						p.Epoch = 0
					}
					parts = append(parts, p)
				}
			}
		}
	}
	for _, p := range parts {
		for _, epoch := range []uint64{4, 5, 6} {
			for _, boot := range []Boot{other, third} {
				for _, flag := range []bool{false, true} {
					for kind := PartInstalled; kind <= PartEnded; kind++ {
						e := PartEvent{
							Kind: kind, Epoch: epoch, Boot: boot, Mine: flag, Whole: flag, At: 9,
						}
						got := p.Next(e, keeps)
						if want := moved(p, e); got != want {
							t.Fatalf("%+v hears %+v: %+v, want %+v", p, e, got, want)
						}
						if got.Bound < p.Bound {
							t.Fatalf("%+v hears %+v: its bound falls", p, e)
						}
					}
				}
			}
		}
	}
}

// moved is what becomes of a part, by the drawing at Kind, one rule after the other.
func moved(p Part, e PartEvent) Part {
	n := p
	decides := func(kind Kind, epoch uint64, to Boot) { n.Kind, n.Epoch, n.To = kind, epoch, to }
	switch {
	case e.Kind == PartInstalled && p.Kind == Held:
		n.Epoch = e.Epoch
	case e.Kind == PartInstalled && e.Mine:
		decides(Claiming, e.Epoch, 0)
		n.Bound = max(p.Bound, e.Epoch)
	case e.Kind == PartInstalled && p.Copy == Copy{}:
		decides(None, 0, 0)
	case e.Kind == PartInstalled:
		decides(Copied, 0, 0)
	case e.Kind == PartClaimed && e.Epoch >= p.Bound:
		n.Bound = e.Epoch
		if p.Kind == Held {
			decides(Giving, e.Epoch, e.Boot)
			n.Copy = Copy{Of: e.Boot, Epoch: e.Epoch, Whole: true}
		}
	case e.Kind == PartFree && p.Kind == Claiming, e.Kind == PartGift && p.Kind == Claiming &&
		p.Epoch == e.Epoch:
		n.Kind = Held
	case e.Kind == PartTaken && p.Kind == Giving && p.To == e.Boot && p.Epoch == e.Epoch:
		n.Kind, n.To = Copied, 0
	case e.Kind == PartCopied && e.Epoch >= p.Bound && (p.Kind == None || p.Kind == Copied):
		n.Kind = Copied
		n.Copy = Copy{Of: e.Boot, Epoch: e.Epoch, Whole: e.Whole, At: e.At}
	case e.Kind == PartEnded && p.Kind != None:
		decides(Copied, 0, 0)
	}
	return n
}

// Promise: of two copies the one is better that is newer and no less whole, or whole where the
// other is not; what is of nobody is no copy.
func TestBetterCopy(t *testing.T) {
	copies := func(of Boot) []Copy {
		return []Copy{
			{}, {of, 4, false, 0}, {of, 4, true, 0}, {of, 5, false, 0}, {of, 5, true, 0},
		}
	}
	for _, c := range copies(1) {
		for _, o := range copies(2) {
			newer := cmp.Compare(c.Epoch, o.Epoch)
			whole := map[bool]int{true: 1}[c.Whole] - map[bool]int{true: 1}[o.Whole]
			want := c.Of != 0 && newer >= 0 && whole >= 0 && newer+whole > 0
			if got := c.better(o); got != want {
				t.Errorf("%+v is better than %+v: %t", c, o, got)
			}
		}
	}
}
