package cluster

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/cespare/xxhash/v2"

	"penstock/limiter/rules"
)

// LimitsHash is one number for the limits of SetLimits and the rules of SetRules, so for what
// stands in files: nodes with equal files have the same hash. The order of files, of limits and
// of rules does not matter. Limits of PutLimits do not count: they are in no file.
// It is never 0.
func (c *catalog) LimitsHash() uint64 {
	return max(1, c.limitsHash.Load()^c.rulesHash.Load())
}

// hashLimits leaves out fields that are zero, so that a release with more fields has the same hash
// for files without them.
func hashLimits(l Limits) uint64 {
	h := xxhash.New()
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if c := l[name].Candidate(); c != nil {
			fmt.Fprintf(h, "candidate %x\n", hashLimits(Limits{name: c}))
		}
		spec := reflect.ValueOf(l[name].Spec)
		for i := range spec.NumField() {
			if f := spec.Field(i); !f.IsZero() {
				fmt.Fprintf(h, "%s=%#v\n", spec.Type().Field(i).Name, f.Interface())
			}
		}
		for _, o := range l[name].Overrides() { // in their order: the first that matches counts
			fmt.Fprintf(
				h,
				"override %q %d %d %d %t\n",
				o.Key,
				o.Limit,
				o.Burst,
				o.Refill,
				o.Unlimited,
			)
		}
	}
	return h.Sum64()
}

// hashRules leaves out the names: a rule without one is called by its place in a file.
func hashRules(r *rules.Set) uint64 {
	if r.Len() == 0 {
		return 0
	}
	var texts []string
	for _, rule := range r.Rules() {
		texts = append(texts, fmt.Sprintf("%q %q %t\n", rule.Match, rule.Apply, rule.Unlimited))
	}
	slices.Sort(texts)
	h := xxhash.New()
	for _, text := range texts {
		h.WriteString(text)
	}
	return h.Sum64()
}

// Disagreeing are the members that have other limits than this node, by LimitsHash. A member of
// a release that does not say (Member.Limits is 0) is not among them.
func (n *Node) Disagreeing() (members []Member) {
	v := n.View()
	if v == nil {
		return nil
	}
	own := n.LimitsHash()
	for i, m := range v.Members {
		if i != v.Self && m.Limits != 0 && m.Limits != own {
			members = append(members, m)
		}
	}
	return members
}
