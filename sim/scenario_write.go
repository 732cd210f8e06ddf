package sim

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"penstock/cluster"
	"penstock/limiter/policy"
)

// WriteYAML writes s as a file that ReadScenario reads back as the same world, to the event.
// Traffic that was not written down request by request cannot be written; only worlds that Shrink
// returns are.
func (s *Scenario) WriteYAML(w io.Writer) error {
	p := s.plan
	if len(p.replays) > 0 || len(p.demands) > 0 {
		return fmt.Errorf("sim: %s has traffic that is not known request by request", s.Name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\n", quoted(s.Name))
	if s.About != "" {
		fmt.Fprintf(&b, "about: %s\n", quoted(s.About))
	}
	fmt.Fprintf(&b, "seed: %d\nduration: %v\nnodes: %d\n", p.seed, p.length, len(p.machines))
	s.writeMachines(&b)
	x, g := &p.weather, &p.gossip
	fmt.Fprintf(&b,
		"links: {delay: %v, jitter: %v, at_most: %v, loss: %v, duplicates: %v, in_order: %v}\n",
		x.near, x.mean, x.far, x.loss, x.twice, x.inOrder)
	if len(p.distances) > 0 {
		b.WriteString("distances:\n")
	}
	for _, d := range p.distances {
		fmt.Fprintf(&b, "  - {way: %s > %s, more: %v}\n", machineID(d.from), machineID(d.to),
			d.more)
	}
	fmt.Fprintf(&b, "gossip: {spread: %v, detect: %v, doubt: %v, settle: %v}\n", g.spread, g.detect,
		g.doubt, g.settle)
	p.table.write(&b)
	fmt.Fprintf(&b, "sweep_every: %v\nlimits:\n", p.sweepEvery)
	var inline []string
	for _, rule := range p.limits {
		fmt.Fprintf(&b, "  - %s\n", policy.Format(mustLimit(rule.Spec))) // YAML has all of JSON
		if rule.inline {
			inline = append(inline, quoted(rule.Name))
		}
	}
	if len(inline) > 0 {
		fmt.Fprintf(&b, "inline: [%s]\n", strings.Join(inline, ", "))
	}
	b.WriteString("traffic:")
	if len(p.script) == 0 {
		b.WriteString(" []")
	}
	b.WriteString("\n")
	for i := range p.script {
		writeRequest(&b, &p.script[i])
	}
	if len(p.faults) > 0 {
		b.WriteString("faults:\n")
	}
	for _, f := range p.faults {
		fmt.Fprintf(&b, "  - {at: %v, %s}\n", f.at, faultText(f))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeMachines writes what tells machines from others.
func (s *Scenario) writeMachines(b *strings.Builder) {
	machines := s.plan.machines
	first := machines[0].clock.start
	fmt.Fprintf(b, "start: %s\n", quoted(time.Unix(0, int64(first)).UTC().Format(time.RFC3339Nano)))
	var agents, disks, clocks []string
	for i, m := range machines {
		if m.agent {
			agents = append(agents, machineID(i))
		}
		if m.disk {
			disks = append(disks, machineID(i))
		}
		if m.clock.start != first || m.clock.drift != 0 {
			clocks = append(clocks, fmt.Sprintf("  %s: {ahead: %v, drift_ppm: %d}\n", machineID(i),
				time.Duration(m.clock.start-first), m.clock.drift))
		}
	}
	if len(agents) > 0 {
		fmt.Fprintf(b, "agents: %s\n", strings.Join(agents, " "))
	}
	if len(disks) > 0 {
		fmt.Fprintf(b, "disks: %s\nsave_every: %v\n", strings.Join(disks, " "), s.plan.saveEvery)
	}
	s.plan.writeCopies(b)
	if len(clocks) > 0 {
		b.WriteString("clocks:\n" + strings.Join(clocks, ""))
	}
}

func writeRequest(b *strings.Builder, a *arrival) {
	fmt.Fprintf(b, "  - at: %v\n    to:", a.at)
	for _, c := range a.calls {
		b.WriteString(" " + machineID(c.node))
		if c.after > 0 {
			fmt.Fprintf(b, "+%v", c.after)
		}
	}
	b.WriteString("\n")
	if a.atomic {
		b.WriteString("    atomic: true\n")
	}
	if a.broken {
		b.WriteString("    refused: true\n")
	}
	if a.patience != cluster.DefaultDeadline {
		fmt.Fprintf(b, "    patience: %v\n", a.patience)
	}
	b.WriteString("    items:")
	if len(a.items) == 0 {
		b.WriteString(" []")
	}
	b.WriteString("\n")
	for i := 0; i < len(a.items); {
		k := i
		for k < len(a.items) && a.items[k] == a.items[i] {
			k++
		}
		fmt.Fprintf(b, "      - {%s}\n", itemText(&a.items[i], k-i))
		i = k
	}
}

func itemText(it *cluster.Item, times int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "limit: %s", quoted(limitName(it)))
	if it.Inline != nil {
		b.WriteString(", brought: true")
	}
	if utf8.ValidString(it.Key) {
		fmt.Fprintf(&b, ", key: %s", quoted(it.Key))
	} else {
		fmt.Fprintf(&b, ", key_hex: %s", quoted(hex.EncodeToString([]byte(it.Key))))
	}
	if it.Cost != 1 {
		fmt.Fprintf(&b, ", cost: %d", it.Cost)
	}
	if it.Op != cluster.OpTake {
		fmt.Fprintf(&b, ", op: %s", opNames[it.Op])
	}
	if it.ID != (cluster.ID{}) {
		fmt.Fprintf(&b, ", id: %d", it.ID.Sequence)
	}
	if h := it.Hold; h != nil {
		if h.ID != (cluster.ID{}) {
			fmt.Fprintf(&b, ", hold: %d", h.ID.Sequence)
		}
		if h.TTL > 0 {
			fmt.Fprintf(&b, ", ttl: %v", h.TTL)
		}
		if h.Holder != "" {
			fmt.Fprintf(&b, ", holder: %s", quoted(h.Holder))
		}
	}
	if times > 1 {
		fmt.Fprintf(&b, ", times: %d", times)
	}
	return b.String()
}

// faultWords are the kinds of faults as draft.fault reads them.
var faultWords = map[kind]string{
	crashes: "crash", boots: "start", freezes: "freeze", thaws: "thaw", cuts: "cut", mends: "heal",
	joins: "join", leaves: "leave", restarts: "restart", rolls: "rolling_restart",
	steps: "clock_step",
}

// faultText is a fault as draft.fault reads it.
func faultText(f fault) string {
	word, known := faultWords[f.kind]
	if !known {
		panic("sim: " + kindNames[f.kind] + " is no fault")
	}
	what := machineID(f.node)
	switch f.kind {
	case cuts, mends:
		what += " > " + machineID(f.peer)
	case rolls:
		what = "all"
	case steps:
		what += fmt.Sprintf(", by: %v", f.by)
	}
	return word + ": " + what
}

// quoted is a text in the quotes of YAML, which JSON's are.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always has a form
	}
	return strings.TrimSuffix(b.String(), "\n")
}
