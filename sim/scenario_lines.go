package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter/policy"
)

// sides reads two sets of nodes and what stands between them: "n1 > n2 n3" is from n1 to the
// others, "n1 - n2" both ways.
func (d *draft) sides(n ast.Node) (from, to []int, both bool, err error) {
	text, err := policy.Text(n)
	if err != nil {
		return nil, nil, false, err
	}
	a, b, oneWay := strings.Cut(text, ">")
	if !oneWay {
		if a, b, both = strings.Cut(text, " - "); !both {
			return nil, nil, false,
				errors.New(`must be like "n1 - n2" (both ways) or "n1 > n2" (one way)`)
		}
	}
	if from, err = d.nodes(a); err != nil {
		return nil, nil, false, err
	}
	if to, err = d.nodes(b); err != nil {
		return nil, nil, false, err
	}
	for _, i := range from {
		if slices.Contains(to, i) {
			return nil, nil, false, fmt.Errorf("%s is on both sides", machineID(i))
		}
	}
	return from, to, both, nil
}

// lines has the same happen to all lines from one set of nodes to another.
func (d *draft) lines(b *blow, at time.Duration, k kind, from, to []int, both bool) {
	for _, i := range from {
		for _, j := range to {
			d.add(b, fault{at: at, kind: k, node: i, peer: j})
			if both {
				d.add(b, fault{at: at, kind: k, node: j, peer: i})
			}
		}
	}
}

func (d *draft) cut(b *blow) error {
	from, to, both, err := d.sides(b.what)
	if err != nil {
		return err
	}
	between := map[bool]string{true: "-", false: ">"}[both]
	d.lines(b, b.at, cuts, from, to, both)
	d.mark(b.at, b.at, "%s %s %s cut", names(from), between, names(to))
	if b.lasts > 0 {
		d.lines(b, b.at+b.lasts, mends, from, to, both)
		d.mark(b.at+b.lasts, b.at+b.lasts, "%s %s %s healed", names(from), between, names(to))
	}
	return nil
}

// heal mends the lines of two sets of nodes, or all that are cut by then.
func (d *draft) heal(b *blow) error {
	if text, _ := policy.Text(b.what); text == "all" {
		b.all = true
		all := make([]int, len(d.plan.machines))
		for i := range all {
			all[i] = i
		}
		for _, i := range all {
			d.lines(b, b.at, mends, []int{i}, slices.Delete(slices.Clone(all), i, i+1), false)
		}
		d.mark(b.at, b.at, "all healed")
		return nil
	}
	from, to, both, err := d.sides(b.what)
	if err != nil {
		return err
	}
	d.lines(b, b.at, mends, from, to, both)
	d.mark(b.at, b.at, "%s %s %s healed", names(from), map[bool]string{true: "-", false: ">"}[both],
		names(to))
	return nil
}

// partition cuts groups of nodes off from each other: "n1 n2 | n3".
func (d *draft) partition(b *blow) error {
	text, err := policy.Text(b.what)
	if err != nil {
		return err
	}
	var groups [][]int
	side := make(map[int]bool)
	for group := range strings.SplitSeq(text, "|") {
		who, err := d.nodes(group)
		if err != nil {
			return err
		}
		for _, i := range who {
			if side[i] {
				return fmt.Errorf("%s is on two sides", machineID(i))
			}
			side[i] = true
		}
		groups = append(groups, who)
	}
	if len(groups) < 2 {
		return errors.New(`must name at least two groups, like "n1 n2 | n3"`)
	}
	if len(side) < len(d.plan.machines) {
		return fmt.Errorf("names %d of %d nodes; say of each on which side it is", len(side),
			len(d.plan.machines))
	}
	sizes := make([]string, len(groups))
	for i, g := range groups {
		sizes[i] = fmt.Sprint(len(g))
		for _, other := range groups[i+1:] {
			d.lines(b, b.at, cuts, g, other, true)
			if b.lasts > 0 {
				d.lines(b, b.at+b.lasts, mends, g, other, true)
			}
		}
	}
	d.mark(b.at, b.at, "partition %s", strings.Join(sizes, "|"))
	if b.lasts > 0 {
		d.mark(b.at+b.lasts, b.at+b.lasts, "healed")
	}
	return nil
}
