package cluster

import (
	"runtime"
	"strings"
	"testing"

	"penstock/limiter"
)

// TestDepthOfACheck: the way of a check reads like a story. It is counted in calls, from the door
// of the node that is asked to the table of the node that decides, without those of the network.
func TestDepthOfACheck(t *testing.T) {
	for _, c := range []struct {
		name, entry string
		id          ID
		most        int
	}{
		{"here", "n1", ID{}, 6},
		{"here, under an id", "n1", ID{Origin: 7, Sequence: 1}, 7},
		{"at another node", "n2", ID{}, 12},
	} {
		w := newWorld(t, 2, five)
		n, key := w.nodes["n1"], w.key("n1", 0)
		var path []string
		n.holder.table.Guard(func(now limiter.Instant, hash uint64) bool {
			path = callers()
			return n.holder.decides(now, hash)
		}, n.parts.keeps)
		d := w.check(c.entry, Item{Limit: "five", Key: key, Cost: 1, ID: c.id})[0]
		if !d.Allowed || d.Owner != "n1" {
			t.Fatalf("%s: %+v", c.name, d)
		}
		if len(path) == 0 || len(path) > c.most {
			t.Errorf("%s: a check is %d calls deep, at most %d are right: %s", c.name, len(path),
				c.most,
				strings.Join(path, " ← "))
		}
	}
}

// callers are the functions of a node on the way to its table, the table's first one included, the
// innermost in front. The network of the test is left out, and Deliver, which only tests call.
func callers() (names []string) {
	pcs := make([]uintptr, 100)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		name := f.Function[strings.LastIndex(f.Function, "/")+1:]
		switch {
		case strings.HasPrefix(name, "limiter.(*Table)"):
			names = []string{name}
		case strings.HasSuffix(f.File, "_test.go"), name == "cluster.(*Node).Deliver":
		case strings.HasPrefix(name, "cluster.") || strings.HasPrefix(name, "dedup."):
			names = append(names, name)
		}
	}
	return names
}
