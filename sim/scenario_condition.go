package sim

import (
	"cmp"
	"fmt"
	"slices"
)

// strikes puts the faults into the order of time, and refuses what cannot happen to a node in the
// state it is in by then.
func (d *draft) strikes() {
	p := d.plan
	slices.SortStableFunc(d.struck, func(a, b struck) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(d.scenario.marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	for i := range p.machines {
		first := slices.IndexFunc(d.struck, func(s struck) bool {
			return s.node == i && moving(s.kind)
		})
		later := first >= 0 && d.struck[first].kind == joins
		if later != p.machines[i].later && d.owned {
			d.page.Fault(d.struck[first].place, "join",
				"together with owner() is for nodes that were not there before")
		}
		p.machines[i].later = later
	}
	if !slices.ContainsFunc(p.machines, func(m machinePlan) bool { return !m.agent && !m.later }) {
		d.page.Fault(d.seen["nodes"], "nodes",
			"nobody is there in the beginning who could own keys")
	}
	state := newCondition(p.machines)
	for _, s := range d.struck {
		why := state.strike(s.fault)
		if why != "" && s.all {
			continue // many lines were never cut
		}
		if why != "" {
			d.page.Fault(s.place, s.name, fmt.Sprintf("%s at %v", why, s.at))
			continue
		}
		p.faults = append(p.faults, s.fault)
	}
}

// moving reports whether a fault takes a node away or brings it.
func moving(k kind) bool {
	return k == crashes || k == boots || k == joins || k == leaves || k == restarts || k == freezes
}

// condition is what state machines and lines are in, as faults strike one after the other.
type condition struct {
	down, frozen map[int]bool
	cut          map[[2]int]bool
}

func newCondition(machines []machinePlan) *condition {
	c := &condition{down: map[int]bool{}, frozen: map[int]bool{}, cut: map[[2]int]bool{}}
	for i, m := range machines {
		c.down[i] = m.later
	}
	return c
}

// strike says why f changes nothing, or makes the change.
func (c *condition) strike(f fault) (why string) {
	if why = cmp.Or(c.hinders(f), c.hindersCut(f)); why != "" {
		return why
	}
	switch f.kind {
	case crashes, leaves:
		c.down[f.node], c.frozen[f.node] = true, false
	case boots, joins:
		c.down[f.node] = false
	case freezes, thaws:
		c.frozen[f.node] = f.kind == freezes
	case cuts, mends:
		c.cut[[2]int{f.node, f.peer}] = f.kind == cuts
	}
	return ""
}

// hinders says why f changes nothing about its machine.
func (c *condition) hinders(f fault) string {
	id, down, frozen := machineID(f.node), c.down[f.node], c.frozen[f.node]
	switch f.kind {
	case crashes:
		if down {
			return id + " is down already"
		}
	case boots, joins:
		if !down {
			return id + " is up already"
		}
	case leaves, restarts:
		if down {
			return id + " is down and cannot leave"
		}
	case freezes:
		if down {
			return id + " is down and cannot freeze"
		}
		if frozen {
			return id + " is frozen already"
		}
	case thaws:
		if !frozen {
			return id + " is not frozen"
		}
	}
	return ""
}

// hindersCut says why f changes nothing about its line.
func (c *condition) hindersCut(f fault) string {
	id, isCut := machineID(f.node), c.cut[[2]int{f.node, f.peer}]
	switch {
	case f.kind != cuts && f.kind != mends:
	case f.node == f.peer:
		return id + " cannot be cut off from itself"
	case f.kind == cuts && isCut:
		return fmt.Sprintf("%s is cut off from %s already", id, machineID(f.peer))
	case f.kind == mends && !isCut:
		return fmt.Sprintf("%s is not cut off from %s", id, machineID(f.peer))
	}
	return ""
}
