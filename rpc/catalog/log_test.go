package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawEntries(t *rapid.T) []Entry {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Entry {
		e := Entry{
			Name: rapid.SampledFrom([]string{"a", "b", "../c"}).Draw(t, "name"),
			Version: Version{
				rapid.Uint64Range(1, 14).Draw(t, "counter"),
				rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "writer"),
			},
			AtMs: rapid.Int64Range(0, 1).Draw(t, "at"),
		}
		if rapid.Bool().Draw(t, "put") {
			e.Limit = json.RawMessage(`{}`)
		}
		return e
	}), 0, 40).Draw(t, "entries")
}

// Promise: nodes that have heard of the same entries have the same log, in whichever order, and
// however often they heard of each; and equal logs have equal hashes.
func TestMergeIsAUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawEntries(t)
		a, b := NewLog(), NewLog()
		for _, e := range list {
			a.Merge(e)
		}
		order := rapid.Permutation(list).Draw(t, "order")
		again := rapid.SliceOfN(rapid.SampledFrom(append(order, Entry{Name: "a", Version: Version{
			1,
			"n1",
		}})), 0, 20).
			Draw(t, "again")
		for _, e := range append(order, again...) {
			if slices.ContainsFunc(
				list,
				func(o Entry) bool { return o.compare(&e) == 0 && o.Name == e.Name },
			) {
				b.Merge(e)
			}
		}
		for _, name := range append(a.Names(), b.Names()...) {
			if x, y := fmt.Sprint(a.History(name)), fmt.Sprint(b.History(name)); x != y {
				t.Fatalf("%s\n%s\n%s", name, x, y)
			}
		}
		if a.Hashes() != b.Hashes() || a.counter != b.counter {
			t.Fatalf("equal logs have other hashes or counters: %v %v", a.counter, b.counter)
		}
		one := NewLog()
		for _, e := range a.Parts(all) {
			one.Merge(e)
		}
		if one.Hashes() != a.Hashes() {
			t.Fatal("the hash is not that of what is remembered")
		}
	})
}

// Promise: the latest of a name is in force, and Kept of them are remembered.
func TestHeadAndHistory(t *testing.T) {
	l := NewLog()
	for range Kept + 3 {
		e := l.Next("n1", "x")
		if !l.Merge(e) || l.Head("x").Version != e.Version {
			t.Fatal(e, l.Head("x"))
		}
		if l.Merge(e) {
			t.Fatal("the same entry is new twice")
		}
	}
	if h := l.History("x"); len(h) != Kept || h[0].Version.Counter != Kept+3 ||
		h[1].Version != h[0].Base {
		t.Error(h)
	}
	if l.Merge(Entry{Name: "x", Version: Version{1, "n9"}}) {
		t.Error("an entry older than all that is remembered is new")
	}
}

func TestVersions(t *testing.T) {
	for _, v := range []Version{{}, {1, "n1"}, {maxCounter, "a@b"}} {
		if again, err := ParseVersion(v.String()); err != nil || again != v {
			t.Error(v, again, err)
		}
	}
	for _, text := range []string{
		"", "1", "@n", "0@n", "x@n", "-1@n", "1@", "9007199254740993@n",
		"99999999999999999999@n",
	} {
		if v, err := ParseVersion(text); err == nil {
			t.Error(text, v)
		}
	}
}
