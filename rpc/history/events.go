package history

import "slices"

// eventRoom is how many events a node remembers.
const eventRoom = 256

// The kinds of events.
const (
	Joined    = "joined"    // a node is there
	Owning    = "owning"    // it owns keys from now on
	Leaving   = "leaving"   // it is about to leave
	Left      = "left"      // it has left, with a goodbye
	Failed    = "failed"    // it is gone without a goodbye
	Restarted = "restarted" // a new start of it is there
	Handover  = "handover"  // partitions were given or received, while both nodes ran
	Takeover  = "takeover"  // partitions of a node that is gone were taken over from copies
	Bereft    = "bereft"    // partitions are held without their counters: all copies were gone
	Weakened  = "degraded"  // answers were given under less than the full promise
	Fenced    = "fenced"    // the node has stopped deciding, because it was stopped or cut off
	Reloaded  = "reload"    // other limits are in force
)

// Event is something that an operator may look for.
type Event struct {
	ID      uint64   `json:"id"`                   // of its node, from 1
	Change  uint64   `json:"change"`               // grows with each change of the node
	Kind    string   `json:"kind"`                 // see above
	AtMs    int64    `json:"at_ms"`                // by the wall clock of the node that says so
	UntilMs int64    `json:"until_ms,omitzero"`    // of a span that goes on or has ended
	Node    string   `json:"node"`                 // it is about
	Boot    uint64   `json:"boot,string,omitzero"` // of Node, if it is about one start of it
	By      string   `json:"by"`                   // the node that says so
	Count   uint64   `json:"count,omitzero"`       // partitions, or answers
	Text    string   `json:"text,omitzero"`        // more, in words
	Failure *Failure `json:"failure,omitzero"`     // of Failed, some seconds later
}

// events are the latest ones of a node. The caller keeps others away.
type events struct {
	list    []Event // oldest first
	lastID  uint64
	changes uint64
}

// add remembers an event, and returns its id.
func (e *events) add(x Event) uint64 {
	e.lastID++
	e.changes++
	x.ID, x.Change = e.lastID, e.changes
	if len(e.list) == eventRoom {
		e.list = slices.Delete(e.list, 0, 1)
	}
	e.list = append(e.list, x)
	return x.ID
}

// change changes an event that may be forgotten already.
func (e *events) change(id uint64, how func(*Event)) {
	for i := len(e.list) - 1; i >= 0; i-- {
		if e.list[i].ID == id {
			e.changes++
			how(&e.list[i])
			e.list[i].Change = e.changes
			return
		}
	}
}

// since are the events that have changed after a change.
func (e *events) since(change uint64) []Event {
	out := []Event{}
	for _, x := range e.list {
		if x.Change > change {
			out = append(out, x)
		}
	}
	return out
}

// forgetFailures keeps what was measured of the latest failures only.
func (e *events) forgetFailures(keep int) {
	for i := len(e.list) - 1; i >= 0; i-- {
		if e.list[i].Failure == nil {
			continue
		}
		if keep--; keep < 0 {
			e.list[i].Failure = nil
		}
	}
}
