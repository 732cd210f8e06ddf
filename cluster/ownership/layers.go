package ownership

// A State is built in layers. A method of a layer sees the layers that it is built on, and cannot
// see those above it:
//
//	State      steps, the boot's life, renewals, the register of its epoch, forks
//	  └─ holdings   partitions, claims, the right to decide
//	       └─ speaker    what is said to others
//	            └─ sight      the configuration and the roster, and what follows from them

// sight is what a boot knows of its cluster. Its methods judge other members, and say which
// configuration should follow. They send nothing.
type sight struct {
	p     *Params
	me    Member
	stage Stage

	config  *Configuration   // installed, or as a candidate: that of the cluster it asks
	chain   []*Configuration // the last that were installed, oldest first, to hand on
	evicted []Boot           // that no configuration may name again
	roster  []entry          // sorted by boot
}

// speaker is a boot that says what it knows.
type speaker struct {
	sight
	out outbox // empty between steps
}

// holdings are a boot's partitions, and until when it may decide for them.
type holdings struct {
	speaker
	right  right
	parts  []Part
	claims claims
}
