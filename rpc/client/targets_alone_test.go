package client

import "testing"

// Promise: looks in which all was a fallback count if they follow each other; one in which another
// answer was heard begins anew, and one in which nothing was heard changes nothing.
func TestAlone(t *testing.T) {
	var to targets
	looks := 0
	right, fell := Decision{Source: "owner"}, Decision{Source: fallbackSource, Degraded: true}
	for i, look := range []struct {
		heard []*Decision
		alone bool
	}{
		{[]*Decision{&fell}, false},
		{[]*Decision{&right}, false},
		{[]*Decision{&fell}, false},
		{nil, false},
		{[]*Decision{&fell, &right}, false},
		{[]*Decision{&fell, &fell}, false},
		{nil, false},
		{[]*Decision{&fell}, true},
		{[]*Decision{&fell}, false}, // at another node
	} {
		for _, d := range look.heard {
			to.heard(d)
		}
		if got := to.alone(&looks); got != look.alone {
			t.Errorf("look %d: alone %t, want %t", i, got, look.alone)
		}
	}
}
