// Package judge decides whether a recorded history of requests keeps the promises of
// docs/promises.md.
//
// Follow one key. Each request to it was asked and answered at two instants of the client's clock,
// and was decided at some instant between them; nothing else is assumed about when. [History.Judge]
// looks for an order of these decisions that one counter explains (counts.go, with porcupine), adds
// up what was admitted in every window (rates.go), and looks at the answers that were marked, late
// or missing (answers.go). A history that cannot be explained is a [Contradiction], with the fewest
// requests that contradict each other (shrink.go).
//
// A fault excuses what its promise allows and nothing else: the units that a crashed owner had
// admitted shortly before ([Fault.Slack]), and answers that were marked or late for a stated time.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind says what a request asks for.
type Kind string

// The kinds of requests.
const (
	Take   Kind = "take"   // charges Cost units
	Peek   Kind = "peek"   // reads the state
	Hold   Kind = "hold"   // reserves Cost units, or takes permits
	Settle Kind = "settle" // charges Cost of the Held units of a hold, and releases the rest
)

// Mark says whether an answer was marked as decided under less than the full promise.
type Mark string

// The marks. The protocol of Redis has no word for degraded: its answers are Unknown.
const (
	Unmarked Mark = "no"
	Marked   Mark = "yes"
	Unknown  Mark = "unknown"
)

// An Op is what one request asked of one key, and what the client heard. Times are since the
// beginning of the run.
type Op struct {
	Number int           `json:"number"`
	Kind   Kind          `json:"kind"`
	Door   string        `json:"door"`
	Node   string        `json:"node"` // empty: a client that knows several nodes
	Limit  string        `json:"limit"`
	Key    string        `json:"key"`
	Cost   int64         `json:"cost"`
	ID     string        `json:"id,omitempty"`   // of a request that is sent more than once
	Held   int64         `json:"held,omitempty"` // Settle: units of the hold
	Hold   int           `json:"hold,omitempty"` // Settle: Number of the request that got the hold
	Start  time.Duration `json:"start"`
	End    time.Duration `json:"end"`

	Failed    string `json:"failed,omitempty"` // why there is no answer; empty: there is one
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"`
	Owner     string `json:"owner,omitempty"`
	Source    string `json:"source,omitempty"`
	Mark      Mark   `json:"mark"`
	Bound     int64  `json:"bound,omitempty"` // of a marked answer; -1: none
	// Refused: the atomic request was refused because of another key. Nothing was charged in the
	// end, but it may have been reserved for a moment.
	Refused bool `json:"refused,omitempty"`
	// Vague: the answer does not say what was charged, as with the settlement of a hold that a
	// marked answer promised.
	Vague bool `json:"vague,omitempty"`
}

func (o *Op) admitted() bool { return o.Failed == "" && o.Allowed && !o.Refused && o.Kind != Peek }

// charged is what the op took, if it was admitted.
func (o *Op) charged() int64 {
	if o.admitted() && o.Kind != Settle {
		return o.Cost
	}
	return 0
}

func (o *Op) overlaps(from, to time.Duration) bool { return o.Start <= to && o.End >= from }

func (o *Op) String() string {
	node := cmp.Or(o.Node, "any")
	asked := fmt.Sprintf("%9.4f–%9.4f s  #%d %s %d by %s of %s", o.Start.Seconds(), o.End.Seconds(),
		o.Number, o.Kind, o.Cost, o.Door, node)
	if o.Kind == Settle {
		asked += fmt.Sprintf(" (held %d)", o.Held)
	}
	if o.ID != "" {
		asked += " id " + o.ID
	}
	if o.Failed != "" {
		return asked + ": no answer, " + o.Failed
	}
	verdict := "denied"
	if o.Allowed {
		verdict = "allowed"
	}
	text := fmt.Sprintf("%s: %s, %d remain", asked, verdict, o.Remaining)
	if o.Refused {
		text += ", refused with its set"
	}
	if o.Mark == Marked {
		text += fmt.Sprintf(", marked with bound %d", o.Bound)
	}
	return text + strings.TrimRight(fmt.Sprintf(" (%s %s", o.Source, o.Owner), " ") + ")"
}

// A Limit is how a limit of the run counts.
type Limit struct {
	Name string `json:"name"`
	// Capacity is the most units of a counter that lasts longer than the run, the most permits at
	// once, or the burst of a rate.
	Capacity int64 `json:"capacity"`
	// PerSecond is the refill of a rate; 0: a counter or permits.
	PerSecond int64 `json:"per_second,omitempty"`
	Permits   bool  `json:"permits,omitempty"`
	// Exact: each unmarked answer says what remains after it.
	Exact bool `json:"exact,omitempty"`
	// Sync: nothing that was answered may be forgotten.
	Sync bool `json:"sync,omitempty"`
}

// A Fault is what was done to the cluster, and what its promise excuses.
type Fault struct {
	Kind   string        `json:"kind"`
	Nodes  []string      `json:"nodes"`  // killed, stopped, leaving or cut off
	Start  time.Duration `json:"start"`  // before it was done
	Struck time.Duration `json:"struck"` // after it was done
	// before it was undone, which takes a while; 0: not known
	Undone time.Duration `json:"undone,omitempty"`
	// after it was undone; Struck if there is nothing to undo
	End     time.Duration `json:"end"`
	Settled time.Duration `json:"settled"` // every partition is held and copied again
	// it did not settle: Settled is when the wait ended
	Never bool `json:"never,omitempty"`

	// Forgets: units may be forgotten that were admitted by Nodes from Slack before the fault
	// until After behind it.
	Forgets bool          `json:"forgets,omitempty"`
	Slack   time.Duration `json:"slack"`
	// Copied: of each counter of Nodes a member that did not fail had a copy.
	Copied bool `json:"copied,omitempty"`
	// OneOfTwo: of two copies one is enough for an answer under a Sync limit, and Nodes may be an
	// owner and the member with that copy, which reach each other and nobody else.
	OneOfTwo bool `json:"one_of_two,omitempty"`
	// Only: other nodes than Nodes answer as if nothing were.
	Only bool `json:"only,omitempty"`
	// Alone: nobody has copies of the counters of Nodes, as with --copies 0.
	Alone bool          `json:"alone,omitempty"`
	After time.Duration `json:"after,omitempty"`

	Marks bool          `json:"marks,omitempty"` // answers may be marked or late,
	Again time.Duration `json:"again,omitempty"` // for so long after Start,
	Heal  time.Duration `json:"heal,omitempty"`  // and for so long after End
	Gone  bool          `json:"gone,omitempty"`  // the doors of Nodes do not answer until End
	Cut   bool          `json:"cut,omitempty"`   // Nodes are a minority: they answer, marked
}

func (f *Fault) String() string {
	return fmt.Sprintf("%9.4f–%9.4f s  %s %s, settled at %.4f s", f.Start.Seconds(),
		f.End.Seconds(),
		f.Kind, strings.Join(f.Nodes, " "), f.Settled.Seconds())
}

// forgetsAll says that the fault may forget counters as a whole: their owner failed together with
// the member that had their copy, or there is none.
func (f *Fault) forgetsAll() bool {
	return f.Forgets && !f.Copied && (f.Alone || len(f.Nodes) > 1)
}

// returns says that the nodes of the fault go on after it, with what they know.
func (f *Fault) returns() bool { return f.Heal > 0 }

// lately says since when the charges of Nodes to a limit may be forgotten. Before a cut both heirs
// answer for those to a Sync limit.
func (f *Fault) lately(l *Limit) (since time.Duration, any bool) {
	switch {
	case !f.Forgets || l.Sync && !f.OneOfTwo:
		return 0, false
	case l.Sync:
		return f.Start, true
	}
	return f.Start - f.Slack, true
}

// forgivable is how many units of ops may be forgotten by the fault.
func (f *Fault) forgivable(l *Limit, ops []*Op) (units int64) {
	since, any := f.lately(l)
	if !any {
		return 0
	}
	for _, o := range ops {
		mine := o.Owner == "" || slices.Contains(f.Nodes, o.Owner)
		switch {
		case !mine || !o.overlaps(since, f.Struck+f.After):
		case o.Mark != Marked:
			units += o.charged()
		case o.Source == "fallback" && o.Kind == Take && o.Failed == "" && o.Start <= f.Struck:
			units += o.Cost // its owner may have charged it, and its answer got lost
		}
	}
	return units
}

// unsettled is how many released units may be charged again, because their settlement is forgotten.
func (f *Fault) unsettled(l *Limit, ops []*Op) (units int64) {
	since, any := f.lately(l)
	if !any {
		return 0
	}
	for _, o := range ops {
		mine := o.Owner == "" || slices.Contains(f.Nodes, o.Owner)
		if mine && o.Kind == Settle && o.overlaps(since, f.Struck+f.After) {
			units += max(0, o.Held-o.Cost)
		}
	}
	return units
}

// A Stall is a time in which the driver itself did not get to run: the machine was busy. It
// excuses answers that are marked, late or missing, and nothing else.
type Stall struct {
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
}

// History is all that happened in a run.
type History struct {
	Seed   uint64   `json:"seed"`
	Limits []Limit  `json:"limits"`
	Faults []*Fault `json:"faults"`
	Stalls []Stall  `json:"stalls,omitempty"`
	Ops    []*Op    `json:"ops"`
	// Patience multiplies the times after which answers must be right again; 0 means 1.
	Patience float64 `json:"patience,omitempty"`

	byKey map[string][]*Op // in the order in which they were answered
}

// A Contradiction is a promise that the history breaks.
type Contradiction struct {
	Rule  string   // which promise
	Fault string   // kind of the fault; "calm" if there was none
	Key   string   // empty: of no single key
	Text  string   // what was seen, and what is promised
	Ops   []*Op    // the fewest requests that contradict each other
	At    []*Fault // the faults around them
}

func (c *Contradiction) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", c.Rule, c.Fault)
	if c.Key != "" {
		fmt.Fprintf(&b, ", key %s", c.Key)
	}
	fmt.Fprintf(&b, ": %s\n", c.Text)
	for _, f := range c.At {
		fmt.Fprintf(&b, "  fault  %s\n", f)
	}
	for _, o := range c.Ops {
		fmt.Fprintf(&b, "         %s\n", o)
	}
	return b.String()
}

// Figures are what was seen of one kind of fault.
type Figures struct {
	Kind     string
	Times    int
	Requests int           // asked from the fault until it was settled
	Forgiven int64         // units that could be forgotten under the promise
	Lost     int64         // units that were forgotten: the fewest that explain the history
	Extra    int64         // units admitted beyond their limits, of all keys
	Worst    int64         // of one key
	Marked   int           // answers
	Anew     int           // of these: of counters that began anew
	Failed   int           // requests without an answer, through doors that should have answered
	Excused  int           // of both, while the machine stalled
	Longest  time.Duration // from a fault until the last answer that was marked, late or missing
	P99      time.Duration // of the answers' times
}

// Verdict is what the judge found.
type Verdict struct {
	Contradictions []*Contradiction
	Figures        []*Figures // by kind, "calm" first
	Keys           int
	Undecided      int // keys with histories that took too long to judge
}

// key is the history of one key.
type key struct {
	name   string
	limit  *Limit
	ops    []*Op    // by start, repeated requests merged
	faults []*Fault // that overlap its life
	run    *History
}

// Judge looks for contradictions.
func (h *History) Judge() *Verdict {
	v := &Verdict{}
	h.index()
	figures := newFigures(h)
	for _, k := range h.keys(v) {
		v.Keys++
		h.judgeKey(k, figures, v)
	}
	h.judgeAnswers(figures, v)
	for _, f := range h.Faults {
		if f.Never {
			v.add(&Contradiction{
				Rule: "settles", Fault: f.Kind, At: []*Fault{f},
				Text: fmt.Sprintf("%v after it was over some partition had no holder or no copy",
					(f.Settled - f.End).Round(time.Millisecond)),
			})
		}
	}
	v.Figures = figures.list()
	slices.SortStableFunc(v.Contradictions, func(a, b *Contradiction) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Fault, b.Fault))
	})
	return v
}

func (v *Verdict) add(c *Contradiction) { v.Contradictions = append(v.Contradictions, c) }

func (h *History) judgeKey(k *key, figures figures, v *Verdict) {
	switch {
	case k.limit.PerSecond > 0:
		judgeRate(k, v)
	case k.limit.Permits:
		judgePermits(k, v)
	default:
		judgeSum(h, k, figures, v)
		if k.limit.Exact {
			judgeCounts(h, k, figures, v)
		}
	}
}

// keys sorts the ops by key, and merges those that repeat one request.
func (h *History) keys(v *Verdict) []*key {
	limits := map[string]*Limit{}
	for i := range h.Limits {
		limits[h.Limits[i].Name] = &h.Limits[i]
	}
	byName := map[string]*key{}
	var all []*key
	for _, o := range h.Ops {
		name := o.Limit + "/" + o.Key
		k := byName[name]
		if k == nil {
			k = &key{name: name, limit: limits[o.Limit], run: h}
			byName[name] = k
			all = append(all, k)
		}
		k.ops = append(k.ops, o)
	}
	for _, k := range all {
		slices.SortFunc(k.ops, func(a, b *Op) int { return cmp.Compare(a.Start, b.Start) })
		from, to := k.ops[0].Start, time.Duration(0)
		for _, o := range k.ops {
			to = max(to, o.End)
		}
		for _, f := range h.Faults {
			// a denial that was remembered, or a share, may outlive it by a second (inDoubt)
			if f.Start <= to && f.Settled+time.Second >= from {
				k.faults = append(k.faults, f)
			}
		}
		k.ops = k.merge(v)
	}
	return all
}

// cause is the kind of the fault that a loss is put down to: the one that may forget most, or else
// the last one before the last request that has charged something. Keys are looked at once more in
// the end, long after that.
func (k *key) cause() string {
	kind, most, charged := calm, int64(-1), time.Duration(0)
	for _, o := range k.ops {
		if o.charged() != 0 {
			charged = max(charged, o.End)
		}
	}
	for _, f := range k.faults {
		if n := f.forgivable(k.limit, k.ops); n >= most && f.Start <= charged {
			kind, most = f.Kind, n
		}
	}
	return kind
}

// calm is when there is no fault.
const calm = "calm"
