package sim

import (
	"errors"
	"fmt"
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

// newcomers notes the nodes that join, before anything else is read of the faults: the owner of a
// key when the world begins depends on the nodes that are there.
func (d *draft) newcomers(n ast.Node) {
	m, _ := n.(*ast.MappingNode)
	if m == nil {
		return
	}
	for _, v := range m.Values {
		if policy.FieldName(v.Key) != "join" {
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

// join has nodes come that were not there. A node that joins before anything else happens to it is
// not there when the world begins.
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
