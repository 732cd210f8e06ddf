package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// late is how long an answer may take in a healthy cluster on a machine that did not stall.
const late = time.Second

// tolerated is the share of requests that may be marked, late or missing after a fault's time: the
// promise is about 99 of 100.
const tolerated = 0.01

// SyncKind is added to a kind of fault for requests under limits with replication: sync, which need
// a node more than others: whether they are right again is judged by itself.
const SyncKind = " (sync)"

// figures are the Figures of each kind of fault.
type figures map[string]*Figures

func newFigures(h *History) figures {
	all := figures{}
	all.of(calm)
	for _, f := range h.Faults {
		all.of(f.Kind).Times++
	}
	return all
}

func (fs figures) of(kind string) *Figures {
	if fs[kind] == nil {
		fs[kind] = &Figures{Kind: kind}
	}
	return fs[kind]
}

func (fs figures) list() (list []*Figures) {
	for _, f := range fs {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *Figures) int {
		if (a.Kind == calm) != (b.Kind == calm) {
			if a.Kind == calm {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Kind, b.Kind)
	})
	return list
}

// troubled: the client was not given a right answer in time.
func (o *Op) troubled() bool {
	return o.Failed != "" || o.Mark == Marked || o.End-o.Start > late
}

func (h *History) times(d time.Duration) time.Duration {
	return time.Duration(float64(d) * cmp.Or(h.Patience, 1))
}

// at is the fault that an op belongs to: the last one that had begun and was not settled.
func (h *History) at(o *Op) (found *Fault) {
	for _, f := range h.Faults {
		if o.overlaps(f.Start, f.Settled) {
			found = f
		}
	}
	return found
}

// stalled: the machine did not run in the time of the op, or shortly before.
func (h *History) stalled(o *Op) bool {
	return slices.ContainsFunc(h.Stalls,
		func(s Stall) bool { return o.overlaps(s.From, s.To+time.Second) })
}

// healed is when a fault excuses nothing any more, also where it was.
func (h *History) healed(f *Fault) time.Duration { return f.End + h.times(f.Heal) }

// isCutOff: the node that was asked is cut off by the fault, or was so a moment ago.
func (h *History) isCutOff(o *Op, f *Fault) bool {
	return f.Cut && slices.Contains(f.Nodes, o.Node) && o.overlaps(f.Start, h.healed(f))
}

// excused says that the fault's promise allows the op to be marked, late or missing.
func (h *History) excused(o *Op, f *Fault) bool {
	switch there := slices.Contains(f.Nodes, o.Node); {
	case !f.Marks, f.Only && !there:
		return false
	case f.Gone && there && o.overlaps(f.Start, f.End):
		return true // nobody is behind that door
	case (o.Mark == Marked || o.Kind == Settle) && h.isCutOff(o, f):
		return true // it says so
	}
	return o.overlaps(f.Start, f.Struck+h.times(f.Again)) ||
		f.Heal > 0 && o.overlaps(f.End, h.healed(f))
}

// after is what was asked after the time of a kind of fault, until it was settled.
type after struct {
	asked    int
	troubled []*Op
	at       []*Fault
}

// judgeAnswers: nothing is marked, late or missing without a fault, nor after a fault's time.
func (h *History) judgeAnswers(figures figures, v *Verdict) {
	byKind, took, sync := map[string]*after{}, map[string][]time.Duration{}, map[string]bool{}
	for _, l := range h.Limits {
		sync[l.Name] = l.Sync
	}
	for _, o := range h.Ops {
		f := h.at(o)
		kind := calm
		if f != nil {
			kind = f.Kind
		}
		x := figures.of(kind)
		x.Requests++
		gone := f != nil && f.Gone && slices.Contains(f.Nodes, o.Node) && o.overlaps(f.Start, f.End)
		if !gone {
			took[kind] = append(took[kind], o.End-o.Start)
			x.note(o, f)
		}
		if f != nil && sync[o.Limit] {
			kind += SyncKind
		}
		h.judgeAnswer(o, f, kind, byKind, figures, v)
	}
	for kind, all := range took {
		slices.Sort(all)
		figures.of(kind).P99 = all[len(all)*99/100]
	}
	for kind, a := range byKind {
		if float64(len(a.troubled)) > tolerated*float64(a.asked) {
			v.add(&Contradiction{
				Rule: "right again", Fault: kind, Ops: tail(a.troubled), At: a.at,
				Text: fmt.Sprintf("%d of %d requests that were asked after its time were "+
					"marked, late or not answered",
					len(a.troubled), a.asked),
			})
		}
	}
}

// note counts an op that was not rightly answered.
func (x *Figures) note(o *Op, f *Fault) {
	if !o.troubled() {
		return
	}
	switch {
	case o.Failed != "":
		x.Failed++
	case o.Mark == Marked:
		x.Marked++
	}
	if f != nil && !(f.Cut && o.Mark == Marked && slices.Contains(f.Nodes, o.Node)) {
		x.Longest = max(x.Longest, o.End-f.Start)
	}
}

// judgeAnswer judges an op in the time of a fault, which may be nil.
func (h *History) judgeAnswer(
	o *Op, f *Fault, kind string, byKind map[string]*after, figures figures, v *Verdict,
) {
	x := figures.of(strings.TrimSuffix(kind, SyncKind))
	if f != nil && f.Cut && h.silent(o, f) {
		v.add(&Contradiction{
			Rule: "the minority is marked", Fault: f.Kind, Key: o.Limit + "/" + o.Key,
			Ops: []*Op{o},
			At:  []*Fault{f}, Text: "a node that is cut off from most admits without saying so",
		})
	}
	if anew := h.begunAnew(o); anew != nil {
		figures.of(anew.Kind).Anew++
		return
	}
	if h.holdForgotten(o) || h.repeated(o) {
		return
	}
	if f != nil && f.Marks {
		if h.excused(o, f) {
			return
		}
		a := byKind[kind]
		if a == nil {
			a = &after{}
			byKind[kind] = a
		}
		a.asked++
		switch {
		case !o.troubled():
		case h.stalled(o):
			x.Excused++
		default:
			a.troubled = append(a.troubled, o)
			if !slices.Contains(a.at, f) {
				a.at = append(a.at, f)
			}
		}
		return
	}
	if o.troubled() {
		h.judgeCalm(o, f, kind, x, v)
	}
}

// repeated says that o repeats a request that was answered with this mark. A repeat gets the answer
// of the first request, with its mark, for as long as its id is remembered.
func (h *History) repeated(o *Op) bool {
	return o.ID != "" && o.Mark == Marked &&
		slices.ContainsFunc(h.byKey[o.Limit+"/"+o.Key], func(x *Op) bool {
			return x.ID == o.ID && x.End < o.Start && x.Mark == Marked && x.Bound == o.Bound
		})
}

// judgeCalm: without a fault that excuses it no answer is marked, and none is missing.
func (h *History) judgeCalm(o *Op, f *Fault, kind string, x *Figures, v *Verdict) {
	for _, before := range h.Faults {
		if h.excused(o, before) {
			return
		}
	}
	if h.stalled(o) {
		x.Excused++
		return
	}
	if o.Failed == "" && o.Mark != Marked {
		return // slow, in a healthy cluster: that is p99
	}
	rule, text := "nothing is marked", "an answer is marked though no fault explains it"
	if o.Failed != "" {
		rule, text = "no request fails", "a request has no answer though no fault explains it"
	}
	c := &Contradiction{
		Rule: rule, Fault: kind, Key: o.Limit + "/" + o.Key, Text: text,
		Ops: []*Op{o},
	}
	if f != nil {
		c.At = []*Fault{f}
	}
	v.add(c)
}

// silent: a node of the minority admits, unmarked, when it must have noticed the cut.
func (h *History) silent(o *Op, f *Fault) bool {
	return o.admitted() && o.Mark == Unmarked && o.Source != "lease" && o.Kind != Settle &&
		slices.Contains(f.Nodes, o.Node) && o.Start > f.Struck+f.After+f.Slack &&
		o.End < cmp.Or(f.Undone, f.End-time.Second/2)
}
