package sim

import (
	"fmt"
	"strings"
)

// An allowance is something that a judge lets pass although it is not what one limiter in one place
// would do. Each stands for a row of docs/promises.md, and each use is counted, so that nobody has
// to believe that it is rare. DESIGN.md has the table with the rows.
type allowance int

// The allowances, by the kind of event of which they let one pass.
const (
	lastCharges allowance = iota
	severalFailed
	lossyCopy
	uncounted
	wholeLimit
	windowAnew
	ownShare
	hastyShare
	untoldDenial
	lateTwice
	ownDebt
	heldMore
	apartAtEnd
	byOperator
	unanswered
	bothOfPair
	allowances // how many there are
)

// judgedKind is a kind of event that judges look at.
type judgedKind int

const (
	anyMove judgedKind = iota
	anyDenial
	anyAnswer
	anyCharge
	anyKept
	anyWorld
	anyDecision
	judgedKinds
)

var judgedWords = [judgedKinds]string{
	anyMove: "changes of hands", anyDenial: "denials", anyAnswer: "answers", anyCharge: "charges",
	anyKept: "counters at the end", anyWorld: "worlds", anyDecision: "decisions",
}

// mostAllowed is the part of the events of a kind, in percent, of which an allowance may let pass
// what it says. More is a failure: then it is the rule, and no allowance.
const mostAllowed = 5

// allowanceWords are an allowance's name, its kind of event, and what it lets pass. Those with a
// figure at the end are used more often than mostAllowed, and wait to be removed: until then they
// fail above that figure.
var allowanceWords = [allowances]struct {
	name string
	of   judgedKind
	says string
	open float64
}{
	lastCharges: {
		"last-charges", anyMove,
		"what was charged just before a death is forgotten", 0,
	},
	severalFailed: {"several-failed", anyMove, "more is forgotten where several failed at once", 0},
	lossyCopy:     {"lossy-copy", anyMove, "more is forgotten where messages get lost", 0},
	uncounted:     {"uncounted", anyMove, "nobody counts what is forgotten", 8},
	wholeLimit:    {"whole-limit", anyMove, "a whole limit may be forgotten", 0},
	windowAnew:    {"window-anew", anyMove, "windows begin anew on a clock that differs", 12},
	ownShare:      {"own-share", anyAnswer, "a share answers while something fails", 9},
	hastyShare:    {"hasty-share", anyAnswer, "a share answers for a client without patience", 0},
	untoldDenial:  {"untold-denial", anyDenial, "a denial is not said to be too early", 6},
	lateTwice:     {"late-twice", anyCharge, "a take is charged again after its memory", 0},
	ownDebt: {
		"own-debt", anyCharge,
		"what a share had let in its node may have charged to itself", 0,
	},
	heldMore:   {"held-more", anyKept, "a counter holds more than was charged", 0},
	apartAtEnd: {"apart-at-end", anyWorld, "members need not agree in the end", 0},
	byOperator: {"by-operator", anyWorld, "members agree only after an operator's word", 0},
	unanswered: {"unanswered", anyAnswer, "an answer may be degraded or late", 6},
	bothOfPair: {"both-of-pair", anyDecision, "a pair decides on both sides", 0},
}

// allowed counts how often allowances were used, and of how many events.
type allowed struct {
	used [allowances]uint64
	of   [judgedKinds]uint64
}

// AllowanceReport is how often something was let pass.
type AllowanceReport struct {
	Name string `json:"name"`
	Says string `json:"says"`
	Used uint64 `json:"used"`
	Kind string `json:"kind"` // of the events
	Of   uint64 `json:"of"`   // so many events
}

// Percent is the share of the events of its kind.
func (r *AllowanceReport) Percent() float64 { return 100 * float64(r.Used) / float64(max(r.Of, 1)) }

func (a *allowed) reports() (list []AllowanceReport) {
	for i := range a.used {
		w := &allowanceWords[i]
		list = append(list, AllowanceReport{
			w.name, w.says, a.used[i], judgedWords[w.of],
			a.of[w.of],
		})
	}
	return list
}

// beyond are the allowances that were used too often to be any.
func (a *allowed) beyond() (names []string) {
	for i := range a.used {
		w := &allowanceWords[i]
		if most := max(mostAllowed, w.open); 100*float64(a.used[i]) > most*float64(a.of[w.of]) {
			names = append(names, w.name)
		}
	}
	return names
}

func (a *allowed) add(o *allowed) {
	for i := range a.used {
		a.used[i] += o.used[i]
	}
	for i := range a.of {
		a.of[i] += o.of[i]
	}
}

func writeAllowances(b *strings.Builder, list []AllowanceReport) {
	for i := range list {
		x := &list[i]
		fmt.Fprintf(b, "allowed    %9d of %9d %-19s %6.3f%% %s\n", x.Used, x.Of, x.Kind,
			x.Percent(), x.Says)
	}
}
