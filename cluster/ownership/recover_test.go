package ownership

import "testing"

// Promise: a boot that waits to be admitted and hears members founds no second cluster on an
// operator's word; once nobody is heard any more, it does.
func TestCandidateRecovers(t *testing.T) {
	w := newWorld(1, 3)
	w.trio("a", "b", "c")
	w.drop = func(_, to string, m Message) bool {
		_, decided := m.(Decided)
		return to == "d" && decided
	}
	d := w.start("d", "a", "d")
	w.run(second)
	if d.s.Stage() != StageCandidate {
		t.Fatalf("d is %v", d.s.Stage())
	}
	w.step(d, Recover{})
	if d.s.Stage() != StageCandidate {
		t.Errorf("d hears members, and is %v", d.s.Stage())
	}
	for _, id := range []string{"a", "b", "c"} {
		w.node(id).up = false
	}
	w.run(d.s.p.Mass + second)
	w.step(d, Recover{})
	if d.s.Stage() != StageJoined {
		t.Errorf("nobody is left, and d is %v", d.s.Stage())
	}
}
