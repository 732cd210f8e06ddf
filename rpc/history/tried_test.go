package history

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// tryBeside is a limit with a candidate that admits so much.
func tryBeside(t *testing.T, name string, most int64) *limiter.Limit {
	t.Helper()
	s := limiter.Spec{Name: name, Algorithm: limiter.FixedWindow, Limit: 100, Per: time.Hour}
	l, err := limiter.New(s)
	if err == nil {
		s.Limit = most
		l, err = l.WithCandidate(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Promise: keys that a candidate refuses are counted for as long as it is in force; another
// candidate of the limit begins anew, and those of other limits stay.
func TestTried(t *testing.T) {
	a, b := tryBeside(t, "a", 1), tryBeside(t, "b", 1)
	inForce := map[string]*limiter.Limit{"a": a, "b": b}
	tried := newTried()
	keep := func() { tried.keep(func(name string) *limiter.Limit { return inForce[name] }) }
	of := func(limit string) string {
		text := ""
		for _, k := range tried.keys.list().Of(limit, 10).Keys {
			text += fmt.Sprintf("%s:%d ", k.Key, k.Checks)
		}
		return text
	}
	for range 3 {
		tried.add("a", a.Candidate(), "x", 1)
	}
	tried.add("a", a.Candidate(), "y", 1)
	tried.add("b", b.Candidate(), "x", 1)
	inForce["a"] = tryBeside(t, "a", 1) // a reload that changes nothing
	keep()
	if of("a") != "x:3 y:1 " || of("b") != "x:1 " {
		t.Errorf("a %q, b %q", of("a"), of("b"))
	}
	other := tryBeside(t, "a", 2)
	tried.add("a", other.Candidate(), "z", 1)
	if of("a") != "z:1 " || of("b") != "x:1 " {
		t.Errorf("after another candidate: a %q, b %q", of("a"), of("b"))
	}
	inForce["a"] = nil
	keep()
	if of("a") != "" || of("b") != "x:1 " || len(tried.by) != 1 {
		t.Errorf("after the end of a limit: a %q, b %q, %d candidates", of("a"), of("b"),
			len(tried.by))
	}
}

// Promise: a sketch is never wrong by more than it says, also after keys of a limit were forgotten.
func TestForget(t *testing.T) {
	h := newHeavy()
	for i := range 2 * heavyPlaces {
		h.add(fmt.Sprint("limit-", i%2), fmt.Sprint("key-", i), true, 1)
		h.add("limit-0", "always", true, 1)
	}
	before := h.list()
	h.forget("limit-1")
	after := h.list()
	if before.Unseen == 0 || after.Unseen < before.Unseen {
		t.Errorf("a key without a place has %d at most; it was %d", after.Unseen, before.Unseen)
	}
	h.add("limit-0", "key-0", true, 1) // its place was taken by another one
	for _, k := range h.list().Keys {
		if real := int64(2); k.Key == "key-0" && (k.Checks < real || k.Checks-k.Over > real) {
			t.Errorf("%+v; it had %d", k, real)
		}
		if k.Limit == "limit-1" {
			t.Errorf("%+v is not forgotten", k)
		}
	}
	if first := h.list().Keys[0]; first.Key != "always" || first.Checks-first.Over > 2*heavyPlaces {
		t.Errorf("%+v", first)
	}
}
