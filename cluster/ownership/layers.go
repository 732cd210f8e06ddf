package ownership

// A State is built in layers. A method of a layer sees the layers that it is built on, and cannot
// see those above it:
//
//	State      steps, the boot's life, forks
//	  └─ founder    a cluster, where there is none; candidates
//	       └─ renewer    renewals, and the right to decide
//	            └─ register   the decision on the next configuration: voter and proposer
//	                 └─ speaker    what is said to others
//	                      └─ sight      the configuration and the roster, and what follows

// sight is what a boot knows of its cluster. Its methods judge other members, and say which
// configuration should follow. They send nothing.
type sight struct {
	p      *Params
	me     Member
	origin origin
	stage  Stage

	config  *Configuration   // installed, or as a candidate: that of the cluster it asks
	chain   []*Configuration // the last that were installed, oldest first, to hand on
	evicted []Boot           // that no configuration may name again
	roster  []entry          // sorted by boot
}

// origin is where a boot comes from.
type origin struct {
	former Boot // of the same process
	elect  Electorate
}

// speaker is a boot that says what it knows.
type speaker struct {
	sight
	out outbox // empty between steps
}

// register is a boot's part in what its epoch decides: the configuration that follows. It is empty
// when the epoch begins.
type register struct {
	speaker
	voter    voter
	proposer proposer
}

// renewer is a boot that renews its right, and knows until when it may decide.
type renewer struct {
	register
	right   right
	polled  Instant // when Poll last came
	renewed Instant // when renewals were last sent
	leaving bool    // the node wishes to leave
	emptied bool    // … and holds nothing any more, as its shell says
}

// founder is a boot that looks for a cluster, or founds one.
type founder struct {
	renewer
	founding founding
	asking   candidacy
}
