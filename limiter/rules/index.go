package rules

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// index finds the rules that may match. Each rule lies in it by one of its conditions: the one with
// beginnings of patterns that the fewest other rules share. Rules without such a condition are
// always looked at: those without conditions, and those with only patterns that begin with a star
// or are networks.
type index struct {
	always     []int32 // numbers of rules, as all lists here are
	attributes []attributeIndex
}

// attributeIndex has rules by the value of an attribute: the whole of it, or what it begins with.
type attributeIndex struct {
	name  string
	whole map[string][]int32
	heads []head // sorted
}

// head is what patterns begin with.
type head struct {
	text  string
	rules []int32
	up    int32 // the longest other one that text begins with, or -1
}

// place is a beginning of patterns of an attribute.
type place struct {
	attribute, text string
	whole           bool
}

// places are where a condition would put its rule; nil if that is everywhere.
func (c *condition) places() (all []place) {
	for i := range c.patterns {
		text, whole := c.patterns[i].Head()
		if text == "" {
			return nil
		}
		all = append(all, place{c.attribute, text, whole})
	}
	slices.SortFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.text, b.text), compareBools(a.whole, b.whole))
	})
	return slices.Compact(all)
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func newIndex(rules []rule) (x index) {
	conditionsAt := map[place]int{}
	for i := range rules {
		for k := range rules[i].conditions {
			for _, p := range rules[i].conditions[k].places() {
				conditionsAt[p]++
			}
		}
	}
	lists := map[place][]int32{}
	for i := range rules {
		best := rules[i].rarestPlaces(conditionsAt)
		if best == nil {
			x.always = append(x.always, int32(i))
		}
		for _, p := range best {
			lists[p] = append(lists[p], int32(i))
		}
	}
	x.attributes = attributesOf(lists)
	return x
}

// rarestPlaces are the places of one condition of r, or nil if no condition has places. It is the
// condition with the fewest conditions in its fullest place.
func (r *rule) rarestPlaces(conditionsAt map[place]int) (best []place) {
	least := 0
	for k := range r.conditions {
		places, most := r.conditions[k].places(), 0
		for _, p := range places {
			most = max(most, conditionsAt[p])
		}
		if len(places) > 0 && (best == nil || most < least) {
			best, least = places, most
		}
	}
	return best
}

// attributesOf sorts the lists of rules at each place by attribute and text.
func attributesOf(lists map[place][]int32) (attributes []attributeIndex) {
	by := map[string]*attributeIndex{}
	for p, list := range lists {
		a := by[p.attribute]
		if a == nil {
			a = &attributeIndex{name: p.attribute, whole: map[string][]int32{}}
			by[p.attribute] = a
		}
		if p.whole {
			a.whole[p.text] = list
		} else {
			a.heads = append(a.heads, head{p.text, list, -1})
		}
	}
	for _, a := range by {
		slices.SortFunc(a.heads, func(x, y head) int { return cmp.Compare(x.text, y.text) })
		for i := range a.heads {
			a.heads[i].up = a.under(a.heads[i].text, int32(i)-1)
		}
		attributes = append(attributes, *a)
	}
	slices.SortFunc(attributes, func(a, b attributeIndex) int {
		return cmp.Compare(a.name, b.name)
	})
	return attributes
}

// under is the longest head that text begins with, at i or before; -1 if there is none. i is the
// last one that is not after text in order. Between it and that head all begin with that head, so
// it is i, or one of those that i begins with.
func (a *attributeIndex) under(text string, i int32) int32 {
	for i >= 0 && !strings.HasPrefix(text, a.heads[i].text) {
		i = a.heads[i].up
	}
	return i
}

// candidates appends the rules that may match, in order and each once.
func (x *index) candidates(to []int32, attributes map[string]string) []int32 {
	to = append(to, x.always...)
	for k := range x.attributes {
		a := &x.attributes[k]
		v := attributes[a.name]
		if v == "" {
			continue
		}
		to = append(to, a.whole[v]...)
		after := sort.Search(len(a.heads), func(i int) bool { return a.heads[i].text > v })
		for i := a.under(v, int32(after)-1); i >= 0; i = a.heads[i].up {
			to = append(to, a.heads[i].rules...)
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}
