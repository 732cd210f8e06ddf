package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter/policy"
)

// How many heirs keep copies, and in which zones the machines are.

// copies reads a number of copies.
func (d *draft) copies(n ast.Node, s *Scenario) error {
	count, err := between(n, 0, cluster.MostCopies)
	if err == nil {
		s.plan.copies = ownership.CopiesOf(int(count))
	}
	return err
}

// zones reads a mapping from zones to nodes.
func (d *draft) zones(n ast.Node, _ *Scenario) error {
	values, err := mapped(n, "zones to nodes")
	for _, v := range values {
		zone := v.Key.GetToken().Value
		who, err := d.nodesOf(v.Value)
		for _, i := range who {
			if other := d.plan.machines[i].zone; other != "" {
				err = fmt.Errorf("names %s, which is in zone %q already", machineID(i), other)
			}
			d.plan.machines[i].zone = zone
		}
		if wrong := cluster.CheckZone(zone); wrong != nil {
			err = wrong
		}
		if err != nil {
			d.page.Fault(v.Value, zone, err.Error())
		}
	}
	return err
}

// mapped are the entries of a mapping.
func mapped(n ast.Node, what string) ([]*ast.MappingValueNode, error) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return nil, fmt.Errorf("must be a mapping from %s, not %s", what, policy.Describe(n))
	}
	return m.Values, nil
}

// writeCopies writes what copies and zones read.
func (p *plan) writeCopies(b *strings.Builder) {
	if p.copies != ownership.OneCopy {
		fmt.Fprintf(b, "copies: %d\n", p.copies.Heirs())
	}
	in := make(map[string][]string)
	for i, m := range p.machines {
		if m.zone != "" {
			in[m.zone] = append(in[m.zone], machineID(i))
		}
	}
	if len(in) > 0 {
		b.WriteString("zones:\n")
	}
	for _, zone := range slices.Sorted(maps.Keys(in)) {
		fmt.Fprintf(b, "  %s: %s\n", quoted(zone), strings.Join(in[zone], " "))
	}
}
