package overview

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/rpc/admin"
	"penstock/rpc/history"
)

// totals are the samples of all nodes together.
type totals struct {
	Step int64 `json:"step"` // seconds
	From int64 `json:"from"` // seconds since 1970, of the first row
	// Rows are allowed, denied, beyond, degraded, candidate, and how many nodes counted.
	Rows [][]uint64 `json:"rows"`
}

// Rows adds up the samples of all nodes from a time on.
func (o *Overview) Rows(from int64, rough bool) totals {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := totals{Step: 1, Rows: [][]uint64{}}
	var all []history.Rows
	last := int64(0)
	for _, m := range o.nodes {
		r := m.series.Read(from, rough)
		if out.Step = r.Step; len(r.Rows) == 0 {
			continue
		}
		if out.From == 0 || r.From < out.From {
			out.From = r.From
		}
		last = max(last, r.From+int64(len(r.Rows))*r.Step)
		all = append(all, r)
	}
	width := len(history.Sample{}) + 1
	for at := out.From; at < last; at += out.Step {
		out.Rows = append(out.Rows, make([]uint64, width))
	}
	for _, r := range all {
		first := (r.From - out.From) / out.Step
		for i, sample := range r.Rows {
			if sample == nil {
				continue
			}
			row := out.Rows[first+int64(i)]
			for k, n := range sample {
				row[k] += uint64(n)
			}
			row[width-1]++
		}
	}
	return out
}

// Happening is an event as all nodes together tell of it.
type Happening struct {
	Key     string           `json:"key"` // the same each time that it is told
	Kind    string           `json:"kind"`
	Node    string           `json:"node"`
	AtMs    int64            `json:"at_ms"`
	UntilMs int64            `json:"until_ms,omitzero"`
	Count   uint64           `json:"count,omitzero"`
	Text    string           `json:"text,omitzero"`
	By      []string         `json:"by"` // the nodes that tell of it
	Verdict *history.Verdict `json:"verdict,omitempty"`

	changed int // the sum of changes
	seen    []history.Failure
}

// Version grows when one of the nodes says something new about the event.
func (h *Happening) Version() int { return h.changed }

// sharedKinds are the events that every node tells of.
var sharedKinds = map[string]bool{
	history.Joined: true, history.Owning: true, history.Leaving: true, history.Left: true,
	history.Failed: true, history.Restarted: true,
}

// Happenings are the events of all nodes, those about one thing together, oldest first.
func (o *Overview) Happenings() []Happening {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := map[string]*Happening{}
	for boot, m := range o.nodes {
		for i := range m.events {
			e := &m.events[i]
			key := strconv.FormatUint(boot, 16) + "." + strconv.FormatUint(e.ID, 10)
			if sharedKinds[e.Kind] {
				key = e.Kind + "." + strconv.FormatUint(e.Boot, 16)
			}
			h := at[key]
			if h == nil {
				h = &Happening{
					Key: key, Kind: e.Kind, Node: e.Node, AtMs: e.AtMs, UntilMs: e.UntilMs,
					Count: e.Count, Text: e.Text,
				}
				at[key] = h
			}
			h.AtMs = min(h.AtMs, e.AtMs)
			h.By = append(h.By, e.By)
			h.changed += int(e.Change)
			if e.Failure != nil {
				h.seen = append(h.seen, *e.Failure)
			}
		}
	}
	out := make([]Happening, 0, len(at))
	for _, h := range at {
		slices.Sort(h.By)
		if len(h.seen) > 0 {
			v := history.Judge(h.seen)
			h.Verdict = &v
		}
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b Happening) int {
		return cmp.Or(cmp.Compare(a.AtMs, b.AtMs), strings.Compare(a.Key, b.Key))
	})
	return out
}

// nodeState is a node as the page shows it.
type nodeState struct {
	admin.MemberJSON
	Answered bool   `json:"answered"`        // within the last rounds of asking
	SilentMs int64  `json:"silent_ms"`       // since its last answer; −1: there is none
	Pulse    *pulse `json:"pulse,omitempty"` // its last answer
}

// clusterState is what a stream says each second, beside counts and events.
type clusterState struct {
	NowMs       int64       `json:"now_ms"`
	Node        string      `json:"node"` // that answers
	Ready       bool        `json:"ready"`
	Lost        string      `json:"lost,omitempty"` // what it says of a lost majority
	Version     string      `json:"version"`
	Epoch       uint64      `json:"epoch"`
	Ring        string      `json:"ring"`
	Limits      int         `json:"limits"`
	Disagreeing []string    `json:"limits_disagreeing"`
	Nodes       []nodeState `json:"nodes"`
	Agents      int         `json:"agents"` // that are there; 32 are asked at most
}

// State is how the cluster is.
func (o *Overview) State(now time.Time, version string) clusterState {
	n := o.Node
	out := clusterState{
		NowMs: now.UnixMilli(), Node: n.ID(), Ready: n.Ready(), Version: version,
		Lost: n.Membership().LostText(), Epoch: admin.EpochOf(n),
		Limits: len(n.Limits()), Disagreeing: admin.Disagreeing(n), Nodes: []nodeState{},
	}
	v := n.View()
	if v == nil {
		return out
	}
	out.Ring = admin.RingName(v)
	known := admin.KnownMembers(n, v, o.Roster)
	o.mu.Lock()
	defer o.mu.Unlock()
	agents := 0
	for i := range known {
		k := &known[i]
		if k.Role == cluster.RoleAgent {
			if agents++; agents > mostAgents {
				continue
			}
		}
		s := nodeState{MemberJSON: k.JSON(), SilentMs: -1}
		if m := o.nodes[k.Boot]; m != nil {
			s.SilentMs = now.Sub(m.at).Milliseconds()
			s.Answered = s.SilentMs < 3*GatherEvery.Milliseconds()
			last := m.last
			s.Pulse = &last
		}
		out.Nodes = append(out.Nodes, s)
	}
	out.Agents = agents
	return out
}
