package ownership

import "slices"

// Event is something that happens to a boot; state.go says what each changes.
type Event interface{ happens(s *State, now Instant) }

type (
	// Poll is the pulse: it comes every few ten milliseconds.
	Poll struct{}
	// Received is a message.
	Received struct {
		From    Boot
		Message Message
	}
	// LineUp, LineEnded and AddressRefused are what a transport sees of a boot. A refusal counts if
	// nothing stands between both ends, and also if the address greets as another boot.
	LineUp         struct{ Boot Boot }
	LineEnded      struct{ Boot Boot }
	AddressRefused struct{ Boot Boot }
	// Unreached says that a member leaves calls from here unanswered, Reached that it answers
	// again.
	Unreached struct{ Boot Boot }
	Reached   struct{ Boot Boot }
	// Suspended says that the process stood still in a way that its clock has not seen.
	Suspended struct{}
	// Leave and Recover come from an operator, Closing from a process that stops: before it closes
	// its door.
	Leave   struct{}
	Stay    struct{} // takes Leave back
	Recover struct{}
	Closing struct{}
	// Emptied says that a node that leaves holds nothing any more.
	Emptied struct{}
)

// Electorate are the boots that found a cluster with this one (R12), as far as its shell
// knows by now. It is an event, because a shell may know addresses first and names later.
type Electorate struct {
	// Size is how many boots found together: a majority of Size has to vote. 0: it is not known
	// yet, and nobody founds.
	Size int
	// IDs are those that may vote, this boot's among them.
	IDs []string
	// Others have no vote here, and may belong to a cluster already.
	Others []string
	// Members are said to be in a cluster. As long as one of them has not answered that it is in
	// none, nobody founds.
	Members []string
	// Stamp is the root of the lineage that this boot founds: of two clusters that meet, the
	// smaller one wins. 0 stands for the boot.
	Stamp Boot
	// Secret is that of a cluster which this boot founds; 0 as long as some of those that would
	// found it are not known to understand one.
	Secret Secret
}

// Of is the electorate of these ids. Of none, the boot founds alone.
func Of(ids ...string) Electorate { return Electorate{Size: max(1, len(ids)), IDs: ids} }

// greets reports whether a node of that id is called.
func (e *Electorate) greets(id string) bool {
	return slices.Contains(e.IDs, id) || slices.Contains(e.Others, id)
}

// Effects are what a step asks of its shell, in order.
type Effects struct {
	Sends     []Send
	Installed []*Configuration
	Ended     Ending // the boot has just ended
	// Stirred: something has changed beside when members have renewed. A boot that was calm before
	// a step that stirs nothing is calm until what Due said.
	Stirred bool
}

// Send is a message to a boot, or to an address where the boot is not known.
type Send struct {
	To      Boot
	Addr    string
	Message Message
}

// renews reports whether an event is a renewal or its acknowledgement, which say themselves what
// they stir.
func renews(e Event) bool {
	r, received := e.(Received)
	if !received {
		return false
	}
	switch r.Message.(type) {
	case Renew, RenewAck:
		return true
	}
	return false
}
