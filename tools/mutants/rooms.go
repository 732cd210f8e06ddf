package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A room is a part of the tree that is mutated, and what has to notice.
type room struct {
	name  string
	dir   string   // the package
	files []string // patterns of its files; none: all but tests and generated code
	tests []step   // in the order in which they run; the first is the room's own
	seeds int      // worlds of the simulator, after all tests; 0: none
	n     int      // mutants, if the flag -n does not say
}

// A step is a run of a package's tests.
type step struct {
	pkg string
	run string // of these tests; empty: all
}

// rooms are what `make mutants` visits. The doors of rpc are not visited, so of its tests only
// those that send frames are run.
var rooms = []*room{
	{
		name: "limiter", dir: "limiter", n: 40, seeds: 30,
		tests: []step{{pkg: "limiter"}, {pkg: "cluster"}},
	},
	{name: "ring", dir: "ring", n: 20, seeds: 30, tests: []step{{pkg: "ring"}, {pkg: "cluster"}}},
	{
		name: "frames", dir: "rpc/peer", n: 40, seeds: 0,
		files: []string{"frame*.go", "codec.go", "greeting.go", "exchange.go"},
		tests: []step{{pkg: "rpc/peer"}, {"rpc", "Peer|Cluster|Line|Denied|Token|TLS"}},
	},
	{
		name: "dedup", dir: "cluster/dedup", n: 20, seeds: 30,
		tests: []step{{pkg: "cluster/dedup"}, {pkg: "cluster"}},
	},
	{
		name: "denial", dir: "cluster/denial", n: 20, seeds: 30,
		tests: []step{{pkg: "cluster/denial"}, {pkg: "cluster"}},
	},
	{
		name: "lease", dir: "cluster/lease", n: 20, seeds: 30,
		tests: []step{{pkg: "cluster/lease"}, {pkg: "cluster"}},
	},
	{
		name: "charges", dir: "cluster/charges", n: 20, seeds: 30,
		tests: []step{{pkg: "cluster/charges"}, {pkg: "cluster"}},
	},
	{
		name: "debts", dir: "cluster/debts", n: 20, seeds: 30,
		tests: []step{{pkg: "cluster/debts"}, {pkg: "cluster"}},
	},
	{
		name: "breaker", dir: "cluster/breaker", n: 20, seeds: 30,
		tests: []step{{pkg: "cluster/breaker"}, {pkg: "cluster"}},
	},
	{name: "ownership", dir: "cluster/ownership", n: 40, tests: []step{{pkg: "cluster/ownership"}}},
	{name: "cluster", dir: "cluster", n: 40, seeds: 60, tests: []step{{pkg: "cluster"}}},
}

func roomOf(rooms []*room, name string) *room {
	i := slices.IndexFunc(rooms, func(r *room) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return rooms[i]
}

// mutants are all that the operators make of a room, in the order of a seed.
func (r *room) mutants(root string, seed uint64) ([]*mutant, error) {
	patterns := r.files
	if len(patterns) == 0 {
		patterns = []string{"*.go"}
	}
	var list []*mutant
	for _, p := range patterns {
		names, err := filepath.Glob(filepath.Join(root, r.dir, p))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "_other.") {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			more, err := mutantsOf(r, filepath.Join(r.dir, filepath.Base(name)), source)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
	}
	inOrder(list, seed)
	return list, nil
}

func inOrder(list []*mutant, seed uint64) {
	slices.SortStableFunc(list, func(a, b *mutant) int {
		return cmp.Compare(a.rank(seed), b.rank(seed))
	})
}
