package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
)

// Report says what happened in one world. The same seed gives the same report, to the byte. Times
// are of the world, not of the machine that imagined it.
type Report struct {
	Seed      uint64            `json:"seed"`
	World     WorldReport       `json:"world"`
	Requests  RequestReport     `json:"requests"`
	Limits    []*LimitReport    `json:"limits"`
	Messages  MessageReport     `json:"messages"`
	Faults    FaultReport       `json:"faults"`
	Holds     HoldReport        `json:"holds"`
	Loss      LossReport        `json:"loss"`
	Available AvailableReport   `json:"available"`
	Promises  []PromiseReport   `json:"promises"`
	Allowed   []AllowanceReport `json:"allowed"` // what judges let pass
	allowed   allowed
	VirtualMS float64  `json:"virtual_ms"` // how long the world lasted
	Events    uint64   `json:"events"`
	TraceHash string   `json:"trace_hash"` // of all events, 16 hex digits
	Failure   *Failure `json:"failure"`    // null if every promise held
}

// WorldReport is what the seed drew.
type WorldReport struct {
	Sky        string        `json:"sky"` // calm, lossy or outage
	Clocks     []ClockReport `json:"nodes"`
	DelayMS    [3]float64    `json:"delay_ms"` // of a message: least, mean of what is added, most
	Loss       float64       `json:"loss"`     // part of the messages
	Duplicates float64       `json:"duplicates"`
	InOrder    bool          `json:"in_order"`
	Keys       int           `json:"keys"`
	Skew       string        `json:"skew"`      // how keys are drawn
	Agents     int           `json:"agents"`    // of the nodes: they own no keys
	Distances  int           `json:"distances"` // links that are longer than others
	// limits that had a calendar window end
	Calendars int     `json:"calendars,omitempty"`
	LengthMS  float64 `json:"length_ms"`
}

// ClockReport is one node and its clock.
type ClockReport struct {
	Name     string  `json:"name"`
	OffsetMS float64 `json:"offset_ms"` // ahead of the first node
	DriftPPM int64   `json:"drift_ppm"`
}

// RequestReport counts what clients asked.
type RequestReport struct {
	Requests int `json:"requests"`
	Items    int `json:"items"`   // of them all
	Visits   int `json:"visits"`  // requests and their repeats that reached a node
	Absent   int `json:"absent"`  // found their node down
	Refused  int `json:"refused"` // answered with an error
	// items denied by a node that remembers what their owner has said
	Remembered int `json:"remembered,omitempty"`
	// visits answered by a node that must have noticed that it was cut off from most
	CutOff int `json:"cut_off,omitempty"`
	// visits of takes that stand or fall together, with several owners
	Spread int `json:"spread,omitempty"`
}

// LimitReport counts what clients heard about one limit.
type LimitReport struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Limit     int64  `json:"limit"`
	PerMS     int64  `json:"per_ms"`
	Burst     int64  `json:"burst,omitempty"`
	Inline    bool   `json:"inline,omitempty"`
	Asked     int    `json:"asked"`    // items heard of, peeks and resets included
	Admitted  int    `json:"admitted"` // takes
	Denied    int    `json:"denied"`   // takes
	Shadowed  int    `json:"shadowed"` // takes denied in secret
	Degraded  int    `json:"degraded"` // of all these, decided without the owner
}

// MessageReport counts what the network did. An ask and its answer are a message each.
type MessageReport struct {
	Sent      int `json:"sent"`
	Lost      int `json:"lost"`
	Doubled   int `json:"doubled"`
	Overtaken int `json:"overtaken"` // arrived before one that was sent earlier
	Refused   int `json:"refused"`   // found nobody at home
	TimedOut  int `json:"timed_out"` // calls that ended without an answer
}

// FaultReport counts what went wrong with machines and lines, and nodes that came and went.
type FaultReport struct {
	Crashes  int `json:"crashes"`
	Freezes  int `json:"freezes"`
	Cuts     int `json:"cuts"`
	Joins    int `json:"joins"`
	Leaves   int `json:"leaves"`
	Restarts int `json:"restarts"` // graceful ones of one node
	Rolls    int `json:"rolls"`    // rolling restarts of all
	Steps    int `json:"steps"`    // of wall clocks
	Saves    int `json:"saves"`    // files that nodes have written
	Restored int `json:"restored"` // starts with what a file says
	Deaths   int `json:"deaths"`   // declared, by each observer
	Views    int `json:"views"`    // that nodes were given
}

// HoldReport counts what was set aside, and what became of it.
type HoldReport struct {
	Opened   int `json:"opened"`   // reservations and permits
	Settled  int `json:"settled"`  // of all, leases too
	RanOut   int `json:"ran_out"`  // likewise
	Extended int `json:"extended"` // put off
	Leases   int `json:"leases"`   // given to nodes
	Spent    int `json:"spent"`    // takes that nodes have decided from leases
}

func (h *HoldReport) add(o *HoldReport) {
	h.Opened += o.Opened
	h.Settled += o.Settled
	h.RanOut += o.RanOut
	h.Extended += o.Extended
	h.Leases += o.Leases
	h.Spent += o.Spent
}

// PromiseReport is how often a promise was looked at.
type PromiseReport struct {
	Name    string `json:"name"`
	Checked uint64 `json:"checked"`
}

// Failure is a broken promise.
type Failure struct {
	Promise string   `json:"promise"`
	Says    string   `json:"says"`
	AtMS    float64  `json:"at_ms"`
	Detail  string   `json:"detail"`
	Events  []string `json:"events"` // the last before it, oldest first
	Replay  string   `json:"replay"` // the command that shows it again
}

// OK reports whether every promise held.
func (r *Report) OK() bool { return r.Failure == nil }

func newLimitReport(rule *limitRule) *LimitReport {
	s := &rule.limit.Spec
	return &LimitReport{
		Name: s.Name, Algorithm: s.Algorithm.String(), Limit: s.Limit,
		PerMS: s.Per.Milliseconds(), Burst: s.Burst, Inline: rule.inline,
	}
}

// count adds a decision as its client heard it.
func (r *LimitReport) count(it *cluster.Item, d *cluster.Decision) {
	r.Asked++
	if d.Degraded {
		r.Degraded++
	}
	switch {
	case it.Op != cluster.OpTake:
	case d.Shadow:
		r.Shadowed++
	case d.Allowed:
		r.Admitted++
	default:
		r.Denied++
	}
}

func (w *world) report() *Report {
	p := w.plan
	r := &Report{
		Seed: p.seed,
		World: WorldReport{
			Sky: string(p.sky),
			DelayMS: [3]float64{
				millis(p.weather.near), millis(p.weather.mean),
				millis(p.weather.far),
			},
			Loss: p.weather.loss, Duplicates: p.weather.twice, InOrder: p.weather.inOrder,
			Keys: p.traffic.keys, Skew: p.traffic.skew, LengthMS: millis(p.length),
		},
		Requests: w.judge.requests, Messages: w.network.tally, Faults: w.faults,
		Holds: w.judge.aside.books.report,
		Loss:  w.judge.counted.loss, Available: w.judge.available.report,
		VirtualMS: millis(w.now), Events: w.trace.events,
		TraceHash: fmt.Sprintf("%016x", w.trace.sum()), Failure: w.judge.failure,
	}
	r.World.Distances = len(p.distances)
	for _, m := range w.machines {
		if m.role == cluster.RoleAgent {
			r.World.Agents++
		}
		offset := time.Duration(m.clock.start - w.machines[0].clock.start)
		r.World.Clocks = append(r.World.Clocks, ClockReport{
			Name: m.id, OffsetMS: millis(offset),
			DriftPPM: m.clock.drift,
		})
	}
	for i := range w.rules {
		if s := &w.rules[i].limit.Spec; s.Calendar != 0 {
			if _, end := calendarWindow(s,
				w.machines[0].clock.at(0)); end <= w.machines[0].clock.at(w.now) {
				r.World.Calendars++
			}
		}
		r.Limits = append(r.Limits, w.judge.tallies[w.rules[i].limit.Name])
	}
	for i := range promises {
		r.Promises = append(r.Promises, PromiseReport{
			Name:    promiseWords[i][0],
			Checked: w.judge.checked[i],
		})
	}
	r.allowed = w.judge.allowed
	r.Allowed = r.allowed.reports()
	if r.Failure != nil {
		r.Failure.Replay = fmt.Sprintf("penstock sim --seed %d", p.seed)
	}
	return r
}

// WriteJSON writes r as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteText writes r for people, 80 columns wide. Only what a failure quotes may be wider.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	x, m, q := &r.World, &r.Messages, &r.Requests
	fmt.Fprintf(&b, "seed %d: %d nodes, %s, %.1f s of virtual time, trace %s\n\n", r.Seed,
		len(x.Clocks), x.Sky, r.VirtualMS/1000, r.TraceHash)
	fmt.Fprintf(&b, "clocks    %v apart, %+d to %+d µs a second\n", x.apart(), x.drift(slices.Min),
		x.drift(slices.Max))
	fmt.Fprintf(&b,
		"network   %.3g ms + %.3g ms on average, at most %.3g ms; %.3g%% lost,\n          %.3g%% "+
			"doubled, %s\n",
		x.DelayMS[0], x.DelayMS[1], x.DelayMS[2], 100*x.Loss, 100*x.Duplicates,
		map[bool]string{true: "in order", false: "in any order"}[x.InOrder])
	fmt.Fprintf(&b,
		"messages  %d sent, %d lost, %d doubled, %d overtaken,\n          %d turned away; %d "+
			"calls timed out\n",
		m.Sent, m.Lost, m.Doubled, m.Overtaken, m.Refused, m.TimedOut)
	f := &r.Faults
	fmt.Fprintf(&b, "faults    %d crashes, %d freezes, %d cuts, %d clocks set\n", f.Crashes,
		f.Freezes, f.Cuts, f.Steps)
	fmt.Fprintf(&b,
		"members   %d joins, %d leaves, %d restarts, %d rolling, %d agents,\n          %d longer "+
			"links\n",
		f.Joins, f.Leaves, f.Restarts, f.Rolls, x.Agents, x.Distances)
	if f.Saves > 0 {
		fmt.Fprintf(&b, "disks     %d files written, %d starts with what a file says\n", f.Saves,
			f.Restored)
	}
	fmt.Fprintf(&b,
		"traffic   %d requests, %d items, %s keys of %d;\n          %d visits, %d refused, %d "+
			"found their node down\n",
		q.Requests, q.Items, x.Skew, x.Keys, q.Visits, q.Refused, q.Absent)
	if h := &r.Holds; h.Opened+h.Leases > 0 {
		fmt.Fprintf(&b,
			"holds     %d opened, %d settled, %d ran out, %d put off;\n          %d leases, %d "+
				"spent\n",
			h.Opened, h.Settled, h.RanOut, h.Extended, h.Leases, h.Spent)
	}
	r.writeLimits(&b)
	fmt.Fprintf(&b, "\n%-10s%10s  promise\n", "", "checked")
	for i, p := range r.Promises {
		fmt.Fprintf(&b, "%-10s%10d  %s\n", p.Name, p.Checked, promiseWords[i][1])
	}
	if r.Failure == nil {
		b.WriteString("\nevery promise held\n")
	} else {
		r.Failure.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// apart is by how much the clocks differ when the world begins.
func (x *WorldReport) apart() time.Duration {
	least, most := 0.0, 0.0
	for _, c := range x.Clocks {
		least, most = min(least, c.OffsetMS), max(most, c.OffsetMS)
	}
	return time.Duration((most - least) * 1e6).Round(time.Millisecond)
}

// drift is the least or the most that a clock gains.
func (x *WorldReport) drift(of func([]int64) int64) int64 {
	var ppm []int64
	for _, c := range x.Clocks {
		ppm = append(ppm, c.DriftPPM)
	}
	return of(ppm)
}

func (r *Report) writeLimits(b *strings.Builder) {
	fmt.Fprintf(b, "\n%-19s%13s%9s%9s%9s%9s%9s\n", "limit", "rate", "asked", "admitted", "denied",
		"shadowed", "degraded")
	for _, l := range r.Limits {
		rate := fmt.Sprintf("%d/%v", l.Limit, short(time.Duration(l.PerMS)*time.Millisecond))
		if l.Burst != 0 && l.Burst != l.Limit {
			rate += fmt.Sprintf(" b%d", l.Burst)
		}
		fmt.Fprintf(b, "%-19s%13s%9d%9d%9d%9d%9d\n", l.Name, rate, l.Asked, l.Admitted, l.Denied,
			l.Shadowed, l.Degraded)
	}
}

func (f *Failure) write(b *strings.Builder) {
	b.WriteString("\nthe last events\n")
	for _, e := range f.Events {
		b.WriteString(e + "\n")
	}
	fmt.Fprintf(b, "\nBROKEN at %.6f s: %s (%s)\n%s\n\nto see it again: %s\n", f.AtMS/1000,
		f.Promise, f.Says, f.Detail, f.Replay)
}

// short is 1m where a Duration says 1m0s.
func short(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }
