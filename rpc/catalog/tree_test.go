package catalog

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

func below(t *testing.T, name, parent string) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(limiter.Spec{
		Name: name, Parent: parent, Algorithm: limiter.GCRA, Limit: 5, Per: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Promise: no change that one node can see through leaves a limit without its parent, or makes a
// circle; nothing is changed then.
func TestChangesOfTrees(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	c := w.catalogs["n1"]
	refused := func(err error, field, want string) {
		t.Helper()
		var input *cluster.InputError
		if !errors.As(err, &input) || input.Field != field ||
			!strings.Contains(input.Reason, want) {
			t.Errorf("%v, want an error of %s with %q", err, field, want)
		}
	}
	put := func(l *limiter.Limit) error {
		_, err := c.Put(ctx, "ann", l, nil)
		return err
	}
	refused(put(below(t, "user", "team")), "limit.parent", `"team"`)
	if err := errors.Join(put(limit(t, "team", 3)), put(below(t, "user", "team"))); err != nil {
		t.Fatal(err)
	}
	w.everywhere("user", 5)
	_, err := c.Delete(ctx, "ann", "team", nil)
	refused(err, "name", `the parent of "user" is "team"`)
	refused(put(below(t, "team", "user")), "limit.parent", "circles")
	leased := limit(t, "team", 3).Spec
	leased.Consistency = limiter.Leased
	l, err := limiter.New(leased)
	if err != nil {
		t.Fatal(err)
	}
	refused(put(l), "limit.parent", "leased")
	w.everywhere("team", 3)
	if err := put(below(t, "user", "")); err != nil {
		t.Error(err)
	}
	if _, err := c.Delete(ctx, "ann", "team", nil); err != nil {
		t.Error(err)
	}
	w.everywhere("team", 0)
	_, err = c.Rollback(ctx, "ann", "user", c.History("user")[1].Version, nil)
	refused(err, "limit.parent", `"team"`)
}

// Promise: two puts at once that make a circle are both in force, and each node says so to those
// that ask; one change ends it.
func TestCircleOfTwoWriters(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	a, b := w.catalogs["n1"], w.catalogs["n2"]
	for _, name := range []string{"x", "y"} {
		if _, err := a.Put(ctx, "ann", limit(t, name, 3), nil); err != nil {
			t.Fatal(err)
		}
	}
	var begun sync.Mutex // taken once, for good
	w.hook = func(_, to string) {
		if to == "n2" && begun.TryLock() {
			if _, err := b.Put(ctx, "bob", below(t, "y", "x"), nil); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := a.Put(ctx, "ann", below(t, "x", "y"), nil); err != nil {
		t.Fatal(err)
	}
	w.everywhere("x", 5)
	w.everywhere("y", 5)
	for id, c := range w.catalogs {
		err := c.Node.Check(&cluster.Request{Items: []cluster.Item{
			{Limit: "x", Key: "1/2/3", Cost: 1},
		}}, make([]cluster.Decision, 1))
		if err == nil || !strings.Contains(err.Error(), "circles") {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := b.Put(ctx, "bob", limit(t, "other", 1), nil); err != nil {
		t.Errorf("a change of another limit: %v", err)
	}
	if _, err := b.Put(ctx, "bob", limit(t, "y", 3), nil); err != nil {
		t.Errorf("the change that ends it: %v", err)
	}
}
