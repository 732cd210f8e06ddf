package policy

import (
	"errors"
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
)

// draftChild is a limit that has a parent, and where that is written. The parent may stand in
// another file, so it is looked for when all have been read.
type draftChild struct {
	page  *page
	node  ast.Node
	limit *limiter.Limit
}

// checkTrees says what is wrong with parents. A limit that is itself at fault would only be said to
// be missing.
func (b *book) checkTrees() {
	if len(b.faults) > 0 {
		return
	}
	named := func(name string) *limiter.Limit { return b.limits[name] }
	for _, c := range b.below {
		_, err := limiter.Ancestors(c.limit, named)
		var spec *limiter.SpecError
		if errors.As(err, &spec) {
			c.page.fault(c.node, spec.Field, spec.Reason)
		}
	}
}

// ParseParts reads limits of one file that is in memory; their parents may be written elsewhere.
// name is what faults call the file.
func ParseParts(name string, data []byte) (*Set, error) {
	b := newBook()
	b.parse(name, data, (*page).top)
	b.below = nil
	return b.set()
}

// LoadParts reads limits as Load does; their parents may be written elsewhere.
func LoadParts(path string) (*Set, error) {
	b, err := load(path, (*page).top)
	if err != nil {
		return nil, err
	}
	b.below = nil
	return b.set()
}

// ParentsFirst are the names of limits, in the order in which they can be put into a cluster one
// after the other: each after those above it, as far as these are among them, and then by name.
func ParentsFirst(limits map[string]*limiter.Limit) []string {
	levels := map[string]int{}
	for name, l := range limits {
		for at := l; at != nil && levels[name] < limiter.MaxLevels; at = limits[at.Parent] {
			levels[name]++
		}
	}
	names := slices.Sorted(maps.Keys(limits))
	slices.SortStableFunc(names, func(a, b string) int { return levels[a] - levels[b] })
	return names
}
