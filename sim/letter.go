package sim

import (
	"time"

	"penstock/cluster"
)

// letter is one Ask on its way there and back.
type letter struct {
	from *process
	// the process that has written what from passes on; nil: it is its own
	origin *process
	to     *machine
	boot   uint64        // that it is meant for
	call   *cluster.Call // until reply is nil: then it is the sender's again
	ask    cluster.Ask   // as it was when it was sent
	// until the deadline, when it was sent: clocks differ, so this is what travels
	left  time.Duration
	sent  time.Duration
	acted bool   // some copy of it was delivered
	void  bool   // some copy of it was turned away: the line is broken, no other copy arrives
	lie   bool   // no node has written it; judges do not hear of it
	alarm *event // at the deadline; nil once the call is settled
	reply *reply // nil once it is

	lone  *lone    // what ask.Items and the items of the first answer mostly are; nil: never needed
	first delivery // of the first copy that arrives

	// how many may still look at it: its sender's job, its alarm, copies and answers that are under
	// way or being read
	uses int
}

// drop ends one use of l. After the last one it is written again. Where a process dies in the
// middle of one, that never ends, and the letter is left to the collector.
func (l *letter) drop() {
	if l.uses--; l.uses == 0 {
		n, one := &l.from.machine.world.network, l.lone
		if one != nil {
			*one = lone{}
		}
		if *l = (letter{lone: one}); len(n.letters) < keptLetters {
			n.letters = append(n.letters, l)
		}
	}
}

// sender is the process that wrote l.
func (l *letter) sender() *process {
	if l.origin != nil {
		return l.origin
	}
	return l.from
}

// keptLetters is how many are kept to be written again, whatever is under way: where a thousand
// nodes begin, each asks all others.
const keptLetters = 4096

func (n *network) letter() *letter {
	last := len(n.letters) - 1
	if last < 0 {
		return new(letter)
	}
	l := n.letters[last]
	n.letters = n.letters[:last]
	return l
}
