package ownership

import "fmt"

// Message is what one boot says to another about ownership. Messages may be lost, doubled, late and
// out of order.
type Message interface {
	String() string
	heard(s *State, now Instant, from Boot) // what it changes (state.go)
}

// ofEpoch is a message that counts in one epoch alone.
type ofEpoch interface {
	Message
	epoch() Epoch
}

// Ballot orders the attempts to decide one epoch's successor: round × 16 + the voter's place.
type Ballot uint64

type (
	// Hello goes to addresses with unknown boots, and to rivals. A founded node says so.
	Hello struct {
		Member   Member
		Former   Boot           // of the same process, before it had to take a new one; 0: none
		Config   *Configuration // nil: unfounded
		Deciding bool           // the sender has the right to decide
		Reply    bool           // it answers a Hello, and is not answered
	}
	// Vote asks an unfounded boot to let Founder found a cluster, or answers that it does.
	Vote struct {
		Founder Boot
		Given   bool
	}
	// Release gives a vote back: the founder that got it never founds.
	Release struct{}
	// Join asks voters to admit the sender.
	Join struct {
		Member Member
		Former Boot
	}
	// Refuse tells a candidate that its name is in use by a boot that answers.
	Refuse struct{ Holder Boot }

	// Renew asks a voter of Epoch for the right to decide.
	Renew struct {
		Epoch     Epoch
		Sent      Instant // on the sender's clock; its sequence as well
		Leaving   bool    // the sender wishes to leave
		Unreached []Boot  // members that the sender does not reach
	}
	// RenewAck acknowledges it.
	RenewAck struct {
		Epoch Epoch
		Sent  Instant // of the Renew
		Clock Instant // of the voter, when it acknowledged
	}
	// Farewell says that the sender has given up its right for good.
	Farewell struct{ Epoch Epoch }

	// Canvass asks a voter whether it would accept Value. It binds nobody.
	Canvass struct{ Value *Configuration }
	// Consent answers it.
	Consent struct {
		Value *Configuration
		Yes   bool
	}
	// Prepare, Promise, Accept and Accepted are single-decree Paxos for the successor of Epoch.
	Prepare struct {
		Epoch  Epoch
		Ballot Ballot
	}
	Promise struct {
		Epoch    Epoch
		Ballot   Ballot // promised; higher than the Prepare's: refused
		Accepted Ballot
		Value    *Configuration // of Accepted
	}
	Accept struct {
		Ballot Ballot
		Value  *Configuration
	}
	Accepted struct {
		Epoch  Epoch
		Ballot Ballot
	}
	// Decided hands on a configuration that was decided.
	Decided struct{ Config *Configuration }
	// Behind asks a member what followed Epoch, which is the asker's.
	Behind struct{ Epoch Epoch }
	// Missed tells a member that its epoch is so old that nobody knows what followed it.
	Missed struct{ Epoch Epoch }

	// Secede asks a member of Epoch to give up its right, and to follow the child of the sender.
	Secede struct {
		Epoch   Epoch
		Recover bool // an operator has said so
	}
	// Seceded answers it.
	Seceded struct{ Epoch Epoch }
)

func (m Hello) String() string {
	s := fmt.Sprintf("Hello from %s:%d", m.Member.ID, m.Member.Boot)
	if m.Former != 0 {
		s += fmt.Sprintf(", formerly %d", m.Former)
	}
	if m.Config != nil {
		s += fmt.Sprintf(", founded %v", m.Config.Epoch)
	}
	if m.Deciding {
		s += ", deciding"
	}
	return s
}

func (m Vote) String() string {
	if m.Given {
		return fmt.Sprintf("Vote for %d", m.Founder)
	}
	return fmt.Sprintf("Vote for %d?", m.Founder)
}
func (m Release) String() string { return "Release" }
func (m Join) String() string    { return fmt.Sprintf("Join %s:%d", m.Member.ID, m.Member.Boot) }
func (m Refuse) String() string  { return fmt.Sprintf("Refuse: the name is held by %d", m.Holder) }
func (m Renew) String() string   { return fmt.Sprintf("Renew %v sent %d", m.Epoch, m.Sent) }
func (m RenewAck) String() string {
	return fmt.Sprintf("RenewAck %v of %d", m.Epoch, m.Sent)
}
func (m Farewell) String() string { return fmt.Sprintf("Farewell %v", m.Epoch) }
func (m Canvass) String() string  { return fmt.Sprintf("Canvass %v", m.Value) }
func (m Consent) String() string  { return fmt.Sprintf("Consent %v %v", m.Yes, m.Value.Epoch) }
func (m Prepare) String() string  { return fmt.Sprintf("Prepare %v %d", m.Epoch, m.Ballot) }
func (m Promise) String() string {
	return fmt.Sprintf("Promise %v %d accepted %d", m.Epoch, m.Ballot, m.Accepted)
}
func (m Accept) String() string   { return fmt.Sprintf("Accept %d %v", m.Ballot, m.Value) }
func (m Accepted) String() string { return fmt.Sprintf("Accepted %v %d", m.Epoch, m.Ballot) }
func (m Decided) String() string  { return fmt.Sprintf("Decided %v", m.Config) }
func (m Behind) String() string   { return fmt.Sprintf("Behind at %v", m.Epoch) }
func (m Missed) String() string   { return fmt.Sprintf("Missed %v", m.Epoch) }
func (m Secede) String() string   { return fmt.Sprintf("Secede %v", m.Epoch) }
func (m Seceded) String() string  { return fmt.Sprintf("Seceded %v", m.Epoch) }

func (m Renew) epoch() Epoch    { return m.Epoch }
func (m RenewAck) epoch() Epoch { return m.Epoch }
func (m Farewell) epoch() Epoch { return m.Epoch }
func (m Canvass) epoch() Epoch  { return m.Value.Previous }
func (m Consent) epoch() Epoch  { return m.Value.Previous }
func (m Prepare) epoch() Epoch  { return m.Epoch }
func (m Promise) epoch() Epoch  { return m.Epoch }
func (m Accept) epoch() Epoch   { return m.Value.Previous }
func (m Accepted) epoch() Epoch { return m.Epoch }
func (m Behind) epoch() Epoch   { return m.Epoch }
func (m Secede) epoch() Epoch   { return m.Epoch }
func (m Seceded) epoch() Epoch  { return m.Epoch }
