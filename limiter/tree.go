package limiter

import (
	"fmt"
	"strings"
)

// Limits may stand in a tree: a user's below a team's, and that below an organisation's. A check
// charges the limit that it names and all above it, or none of them (Spec.Parent). A limit knows
// the name of its parent only; the caller has all limits, and charges them.

// MaxLevels bounds a limit and those above it, together.
const MaxLevels = 8

// ParentKey is the key under which the parent of a limit is charged for key: what stands before the
// last slash. A key without a slash, or with nothing before it, has none.
func ParentKey(key string) (parent string, has bool) {
	slash := strings.LastIndexByte(key, '/')
	if slash < 1 {
		return "", false
	}
	return key[:slash], true
}

// Ancestors are the limits above l, its parent first, as named finds them; named returns nil where
// it knows none. What is wrong with one of them is a *SpecError about l's parent.
func Ancestors(l *Limit, named func(name string) *Limit) (above []*Limit, err error) {
	reach := func(format string, args ...any) error {
		return &SpecError{"parent", fmt.Sprintf(format, args...)}
	}
	for at := l; at.Parent != ""; {
		parent := named(at.Parent)
		switch {
		case parent == nil:
			return nil, reach("of %q is %q, and no limit has that name; write that limit too, or "+
				"leave the parent out", at.Name, at.Parent)
		case parent.Name == l.Name || len(above) == MaxLevels-1 && inCircle(l, above):
			return nil, reach("of %q leads back to a limit that is below it: %s; a tree has no "+
				"circles", at.Name, line(l, above, parent))
		case len(above) == MaxLevels-1:
			return nil, reach("%s are more than %d levels; leave some out",
				line(l, above, parent), MaxLevels)
		case parent.Unsettled != l.Unsettled:
			return nil, reach("%q and %q differ in unsettled, and a reservation that runs out "+
				"would be charged to one of them; give both the same", parent.Name, l.Name)
		}
		if why := parent.outsideTrees(); why != "" {
			return nil, reach("%q cannot be one: %s", parent.Name, why)
		}
		above = append(above, parent)
		at = parent
	}
	return above, nil
}

// inCircle reports whether a limit is above itself.
func inCircle(l *Limit, above []*Limit) bool {
	seen := map[string]bool{l.Name: true}
	for _, a := range above {
		if seen[a.Name] {
			return true
		}
		seen[a.Name] = true
	}
	return false
}

// line writes a limit and those above it.
func line(l *Limit, above []*Limit, next *Limit) string {
	names := []string{fmt.Sprintf("%q", l.Name)}
	for _, a := range append(above[:len(above):len(above)], next) {
		names = append(names, fmt.Sprintf("%q", a.Name))
	}
	return strings.Join(names, " < ")
}

// refuseParent says why s cannot have the parent that it has.
func (s *Spec) refuseParent() string {
	if s.Parent == "" {
		return ""
	}
	switch {
	case s.Inline:
		return "is for limits with a name that all know; one that a request brings along has none"
	case s.Nameless:
		return "is for limits with a name"
	case len(s.Parent) > MaxName:
		return fmt.Sprintf("has %d bytes; 1 to %d are accepted", len(s.Parent), MaxName)
	case s.Parent == s.Name:
		return "is the limit itself; name another one, or leave it out"
	}
	if why := s.outsideTrees(); why != "" {
		return "is not possible here: " + why
	}
	return ""
}

// outsideTrees says why s can neither have a parent nor be one; empty if it can. All levels of a
// tree are charged or none is, at nodes that may be several: so each must be able to set a cost
// aside, and a refusal must change nothing.
func (s *Spec) outsideTrees() string {
	switch {
	case s.Consistency == Leased:
		return "leased units are spent where no other level is asked; use consistency exact"
	case s.Consistency == Replicated:
		return "of a replicated limit nothing can be set aside; use consistency exact"
	case s.Algorithm == Concurrency:
		return "concurrency counts permits, and a tree charges costs; use another algorithm"
	case s.Algorithm == LeakyBucket, s.Delays():
		return "leaky_bucket and on_deny: delay tell a caller to wait, and the other levels " +
			"would count it before it goes on; use another one"
	case s.stated():
		return fmt.Sprintf("each request of a %v states its own limit; use another algorithm",
			s.Algorithm)
	case s.ClientTime:
		return "client_time goes by the clocks of clients, and the other levels do not; leave " +
			"it out"
	case s.Sessions:
		return "sessions put refills off, which a cost that is set aside does not; leave them out"
	case s.Strict:
		return "strict puts refills off, which a cost that is set aside does not; leave it out"
	case s.Drain:
		return "drain takes what is left when a check is refused, and a refused check of a tree " +
			"charges nothing; leave it out"
	case s.CountRejected:
		return "count_rejected charges refusals, and a refused check of a tree charges nothing; " +
			"leave it out"
	}
	return ""
}
