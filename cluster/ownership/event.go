package ownership

// Event is something that happens to a boot.
type Event interface{ event() }

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
	// Unreached says that a member cannot be called from here though voters can.
	Unreached struct{ Boot Boot }
	// Suspended says that the process stood still in a way that its clock has not seen.
	Suspended struct{}
	// Leave and Recover come from an operator, Closing from a process that stops: before it closes
	// its door.
	Leave   struct{}
	Recover struct{}
	Closing struct{}
	// Emptied says that a node that leaves holds nothing any more. It is for shells that keep
	// partitions themselves (Params.Partitions is 0).
	Emptied struct{}
	// Fetched says that the better copy which a PartFetch asked for is here.
	Fetched struct{ Partition int }
	// Copying says that this holder wants To to keep copies of a partition.
	Copying struct {
		Partition int
		To        Boot
		Whole     bool
	}
)

func (Poll) event()           {}
func (Received) event()       {}
func (LineUp) event()         {}
func (LineEnded) event()      {}
func (AddressRefused) event() {}
func (Unreached) event()      {}
func (Suspended) event()      {}
func (Leave) event()          {}
func (Recover) event()        {}
func (Closing) event()        {}
func (Emptied) event()        {}
func (Fetched) event()        {}
func (Copying) event()        {}

// Effects are what a step asks of its shell, in order.
type Effects struct {
	Sends     []Send
	Installed []*Configuration
	Parts     []PartEffect
	Ended     Ending // the boot has just ended
}

// Send is a message to a boot, or to an address where the boot is not known.
type Send struct {
	To      Boot
	Addr    string
	Message Message
}
