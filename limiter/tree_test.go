package limiter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// branch makes limits of an hour, each with the parent that stands behind its name.
func branch(t *testing.T, parents ...string) map[string]*Limit {
	t.Helper()
	all := map[string]*Limit{}
	for _, p := range parents {
		name, parent, _ := strings.Cut(p, " < ")
		l, err := New(Spec{
			Name: name, Parent: parent, Algorithm: GCRA, Limit: 5, Per: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		all[name] = l
	}
	return all
}

func ancestors(all map[string]*Limit, name string) ([]*Limit, error) {
	return Ancestors(all[name], func(name string) *Limit { return all[name] })
}

// Promise: eight levels are a tree, and nine are none; a circle is found from each limit below it.
func TestAncestors(t *testing.T) {
	var list []string
	for i := range 9 {
		list = append(list, fmt.Sprintf("%d < %d", i, i+1))
	}
	all := branch(t, append(list, "9")...)
	if above, err := ancestors(all, "2"); err != nil || len(above) != MaxLevels-1 ||
		above[0].Name != "3" || above[6].Name != "9" {
		t.Errorf("%v, %v", above, err)
	}
	for _, c := range []struct {
		all        map[string]*Limit
		name, want string
	}{
		{all, "1", "more than 8 levels"},
		{branch(t, "a < b", "b < a"), "a", `"a" < "b" < "a"`},
		{branch(t, "a < b", "b < c", "c < b"), "a", "circles"},
		{branch(t, "a < b", "b < c"), "a", `of "b" is "c", and no limit has that name`},
	} {
		_, err := ancestors(c.all, c.name)
		var spec *SpecError
		if !errors.As(err, &spec) || spec.Field != "parent" ||
			!strings.Contains(spec.Reason, c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Promise: what cannot be set aside, or charges refusals, has no parent and is none, and the error
// says why.
func TestOutsideTrees(t *testing.T) {
	for want, change := range map[string]func(s *Spec){
		"leased":         func(s *Spec) { s.Consistency = Leased },
		"replicated":     func(s *Spec) { s.Consistency = Replicated },
		"concurrency":    func(s *Spec) { s.Algorithm, s.Anchor = Concurrency, Epoch },
		"stated_window":  func(s *Spec) { s.Algorithm, s.Anchor = StatedWindow, Epoch },
		"client_time":    func(s *Spec) { s.ClientTime = true },
		"sessions":       func(s *Spec) { s.Sessions = true },
		"strict":         func(s *Spec) { s.Strict = true },
		"drain":          func(s *Spec) { s.Drain = true },
		"leaky_bucket":   func(s *Spec) { s.Algorithm, s.Anchor = LeakyBucket, Epoch },
		"on_deny: delay": func(s *Spec) { s.OnDeny = DenyDelay },
		"count_rejected": func(s *Spec) { s.Algorithm, s.CountRejected = FixedWindow, true },
		"unsettled":      func(s *Spec) { s.Unsettled = UnsettledRelease },
	} {
		s := Spec{
			Name: "x", Algorithm: TokenBucket, Anchor: FirstHit, Limit: 5, Per: time.Hour,
		}
		change(&s)
		l, err := New(s)
		if err != nil {
			t.Fatal(want, err)
		}
		all := branch(t, "child < x")
		all["x"] = l
		if _, err := ancestors(all, "child"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("as a parent: %v, want %q", err, want)
		}
		s.Parent = "top"
		if _, err := New(s); want != "unsettled" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("as a child: %v, want %q", err, want)
		}
	}
	for _, s := range []Spec{
		{Name: "x", Parent: "x"},
		{Name: "x", Parent: strings.Repeat("x", 257)},
		{Name: "x", Parent: "y", Inline: true},
		{Name: "x", Parent: "y", Nameless: true},
	} {
		s.Algorithm, s.Limit, s.Per = GCRA, 5, time.Hour
		if _, err := New(s); err == nil || !strings.HasPrefix(err.Error(), "parent: ") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestParentKey(t *testing.T) {
	for key, want := range map[string]string{
		"acme/search/ann": "acme/search", "acme/search": "acme", "acme/": "acme", "//": "/",
		"acme": "", "/ann": "", "": "", "/": "",
	} {
		if got, has := ParentKey(key); got != want || has != (want != "") {
			t.Errorf("%q: %q, %t; want %q", key, got, has, want)
		}
	}
}

// Promise: counters stay when a parent comes or goes, and an override keeps it.
func TestParentIsNoIdentity(t *testing.T) {
	s := Spec{Name: "x", Algorithm: GCRA, Limit: 5, Per: time.Hour}
	plain, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Parent = "y"
	below, err := New(s, Override{Key: "a/*", Unlimited: true}, Override{Key: "b/*", Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	if !plain.sameIdentity(below) || plain.SameAs(below) || plain.Identity() != below.Identity() {
		t.Error("a parent is part of the identity, or no difference")
	}
	for _, key := range []string{"a/1", "b/1", "c/1"} {
		if got := below.For(key).Parent; got != "y" {
			t.Errorf("of %s the parent is %q", key, got)
		}
	}
}
