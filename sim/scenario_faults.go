package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter/policy"
)

// blow is one entry of a scenario's faults while it is read.
type blow struct {
	at     time.Duration
	lasts  time.Duration // until it is put right again; 0: never
	by     time.Duration // of a clock that is set: by how much
	action *action
	what   ast.Node // the action's value
	all    bool     // it strikes whatever it applies to
}

// struck is a fault with the place where it was written down.
type struck struct {
	fault
	place ast.Node
	name  string // of the action
	all   bool   // it strikes whatever it applies to
}

var blowFields = append([]field[blow]{
	{"at", sets(spanOf(0, maxDuration), func(b *blow) *time.Duration { return &b.at })},
	{"for", sets(spanOf(1, maxDuration), func(b *blow) *time.Duration { return &b.lasts })},
	{"by", sets(spanOf(-maxDuration, maxDuration), func(b *blow) *time.Duration { return &b.by })},
}, actionFields()...)

// action is what a fault can do.
type action struct {
	name string
	ends bool // may be put right again by itself, with "for"
	// writes the faults of the world, and the marks on the time axis
	do func(d *draft, b *blow) error
}

var actions = []action{
	{"crash", true, func(d *draft, b *blow) error {
		return d.pair(b, crashes, boots, "%s down", "%s up again")
	}},
	{"start", false, func(d *draft, b *blow) error {
		return d.pair(b, boots, 0, "%s up again", "")
	}},
	{"freeze", true, func(d *draft, b *blow) error {
		return d.pair(b, freezes, thaws, "%s frozen", "%s thawed")
	}},
	{"thaw", false, func(d *draft, b *blow) error { return d.pair(b, thaws, 0, "%s thawed", "") }},
	{"cut", true, (*draft).cut},
	{"heal", false, (*draft).heal},
	{"partition", true, (*draft).partition},
	{"join", false, (*draft).join},
	{"leave", false, func(d *draft, b *blow) error {
		return d.pair(b, leaves, 0, "%s leaves", "")
	}},
	{"restart", false, func(d *draft, b *blow) error {
		return d.pair(b, restarts, 0, "%s leaves and comes back", "")
	}},
	{"rolling_restart", false, (*draft).roll},
	{"clock_step", false, (*draft).step},
}

func actionFields() (all []field[blow]) {
	for i := range actions {
		a := &actions[i]
		all = append(all, field[blow]{a.name, func(_ *draft, n ast.Node, b *blow) error {
			if b.action != nil {
				return fmt.Errorf("and %s exclude each other: write two entries", b.action.name)
			}
			b.action, b.what = a, n
			return nil
		}})
	}
	return all
}

// newcomers notes who joins, before anything else is read of the faults: who owns a key when the
// world begins depends on who is there.
func (d *draft) newcomers(n ast.Node) {
	m, _ := n.(*ast.MappingNode)
	if m == nil {
		return
	}
	for _, v := range m.Values {
		if v.Key.String() != "join" {
			continue
		}
		who, _ := d.nodesOf(v.Value) // fault says what is wrong with it
		for _, i := range who {
			d.plan.machines[i].later = true
		}
	}
}

// fault reads one entry of the faults.
func (d *draft) fault(n ast.Node) {
	before := d.page.Faults()
	var b blow
	places := fields(d, n, "a fault", blowFields, &b)
	if d.page.Faults() > before {
		return
	}
	if b.action == nil {
		d.page.Fault(n, "faults", "does nothing; a fault has: "+fieldNames(blowFields))
		return
	}
	if places["at"] == nil {
		d.page.Fault(n, "at", "is missing")
		return
	}
	if d.plan.length > 0 && b.at+b.lasts > d.plan.length {
		d.page.Fault(places["at"], "at",
			fmt.Sprintf("ends %v after the scenario begins, which lasts %v", b.at+b.lasts,
				d.plan.length))
		return
	}
	switch step := b.action.name == "clock_step"; {
	case b.lasts > 0 && !b.action.ends:
		d.page.Fault(places["for"], "for", b.action.name+" does not end by itself")
		return
	case step != (places["by"] != nil):
		d.page.Fault(n, "by", "goes with clock_step: by how much the clock is set")
		return
	}
	if err := b.action.do(d, &b); err != nil {
		d.page.Fault(b.what, b.action.name, err.Error())
	}
}

// add has f happen.
func (d *draft) add(b *blow, f fault) {
	d.struck = append(d.struck, struck{f, b.what, b.action.name, b.all})
}

func (d *draft) mark(at, until time.Duration, format string, args ...any) {
	d.scenario.marks = append(d.scenario.marks, mark{at, until, fmt.Sprintf(format, args...)})
}

// pair has something happen to nodes, and the opposite later.
func (d *draft) pair(b *blow, wrong, right kind, says, saysLater string) error {
	who, err := d.nodesOf(b.what)
	if err != nil {
		return err
	}
	for _, i := range who {
		d.add(b, fault{at: b.at, kind: wrong, node: i})
		if b.lasts > 0 {
			d.add(b, fault{at: b.at + b.lasts, kind: right, node: i})
		}
	}
	d.mark(b.at, b.at, says, names(who))
	if b.lasts > 0 {
		d.mark(b.at+b.lasts, b.at+b.lasts, saysLater, names(who))
	}
	return nil
}

func (d *draft) nodesOf(n ast.Node) ([]int, error) {
	text, err := policy.Text(n)
	if err != nil {
		return nil, err
	}
	return d.nodes(text)
}

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

// join has nodes come that were not there. Whoever joins before anything else happens to it is not
// there when the world begins.
func (d *draft) join(b *blow) error { return d.pair(b, joins, 0, "%s joins", "") }

// roll has all nodes leave and come back, one after the other.
func (d *draft) roll(b *blow) error {
	if text, _ := policy.Text(b.what); text != "all" {
		return errors.New("is of all nodes: write all; for one node there is restart")
	}
	d.add(b, fault{at: b.at, kind: rolls})
	d.mark(b.at, b.at, "rolling restart of all")
	return nil
}

// step has somebody set the clocks of nodes.
func (d *draft) step(b *blow) error {
	who, err := d.nodesOf(b.what)
	if err != nil {
		return err
	}
	for _, i := range who {
		d.add(b, fault{at: b.at, kind: steps, node: i, by: b.by})
	}
	d.mark(b.at, b.at, "clock of %s set by %+v", names(who), b.by)
	return nil
}

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
	id, line := machineID(f.node), [2]int{f.node, f.peer}
	switch {
	case f.kind == crashes && c.down[f.node]:
		return id + " is down already"
	case (f.kind == boots || f.kind == joins) && !c.down[f.node]:
		return id + " is up already"
	case (f.kind == leaves || f.kind == restarts) && c.down[f.node]:
		return id + " is down and cannot leave"
	case f.kind == freezes && c.down[f.node]:
		return id + " is down and cannot freeze"
	case f.kind == freezes && c.frozen[f.node]:
		return id + " is frozen already"
	case f.kind == thaws && !c.frozen[f.node]:
		return id + " is not frozen"
	case (f.kind == cuts || f.kind == mends) && f.node == f.peer:
		return id + " cannot be cut off from itself"
	case f.kind == cuts && c.cut[line]:
		return fmt.Sprintf("%s is cut off from %s already", id, machineID(f.peer))
	case f.kind == mends && !c.cut[line]:
		return fmt.Sprintf("%s is not cut off from %s", id, machineID(f.peer))
	}
	switch f.kind {
	case crashes, leaves:
		c.down[f.node], c.frozen[f.node] = true, false
	case boots, joins:
		c.down[f.node] = false
	case freezes, thaws:
		c.frozen[f.node] = f.kind == freezes
	case cuts, mends:
		c.cut[line] = f.kind == cuts
	}
	return ""
}
