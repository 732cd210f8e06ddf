package ownership

import "time"

// Instant is a reading of the clock of the node that holds it. Instants of two nodes are never
// compared; only differences are, as far as Margin allows.
type Instant int64

// Add is d after t.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Since is how long ago earlier was.
func (t Instant) Since(earlier Instant) time.Duration { return time.Duration(t - earlier) }

// Params are the same for all nodes of a cluster. They say how long things take, and nothing of
// which node decides.
type Params struct {
	// Failover is what the cluster is founded with; 0 stands for the constant of that name. The
	// configuration carries it, so that all members go by the same times.
	Failover time.Duration
	// Copies is what the cluster is founded with, and then in its configuration.
	Copies Copies

	Lease  time.Duration // how long a renewal is worth, on the clock of the member that sent it
	Margin time.Duration // by how much clocks may differ while a lease lasts
	Renew  time.Duration // between two renewals: a third of Lease
	// a member that has not renewed for so long may be replaced; Lease at most
	Suspect time.Duration
	Step    time.Duration // a proposer waits so long for each voter of a lower rank
	Stop    time.Duration // a node that was not polled for so long was stopped
	// Mass is how long members must have been silent if several, and more than a third of all, are
	// to be evicted at once: a switch may be restarting.
	Mass time.Duration
	// Missed is how long a member has to be Unreached until others are told, and it is asked to
	// step down. It is long, for that moves all that the member holds.
	Missed time.Duration
	// Drift is by which part a voter's clock may run faster than a member's before the member stops
	// counting its acknowledgements, in thousandths; 0: clocks are not compared.
	Drift int64

	without rule // rules that a test takes out, to show what they are for; never set elsewhere
}

// Failover is how long a member that is silent is waited for, unless a cluster is founded with
// another one, from MinFailover to MaxFailover.
const (
	Failover    = time.Second
	MinFailover = 300 * time.Millisecond
	MaxFailover = time.Minute
)

// Default are the parameters of a cluster with a failover of Failover.
func Default() Params {
	p := Params{Drift: 40}
	p.setFailover(0)
	return p
}

// With are these parameters for a cluster that founds itself with another failover.
func (p Params) With(failover time.Duration) Params {
	p.setFailover(failover)
	return p
}

// setFailover sets all times that follow from the failover; 0 stands for Failover.
func (p *Params) setFailover(d time.Duration) {
	if d == Failover {
		d = 0
	}
	p.Failover = d
	unit := d / 20
	if d == 0 {
		unit = Failover / 20
	}
	p.Lease, p.Margin, p.Renew, p.Suspect = 12*unit, unit, 4*unit, 12*unit
	p.Step, p.Stop, p.Mass = unit, 8*unit, 40*unit
	p.Missed = 20 * unit
}

// quiet is how long a voter has acknowledged nothing before a right that it acknowledged is over.
func (p *Params) quiet() time.Duration {
	if !p.keeps(ruleMargin) {
		return p.Lease
	}
	return p.Lease + p.Margin
}

// rule is a set of rules. Each of them is one clause of R1 to R13 that a test can take out. Those
// about partitions (R8, R9) are in keeper_model_test.go, beside the model of partitions.
type rule uint64

const (
	ruleLineage rule = 1 << iota // R1: a child has a lineage of its own
	ruleConcede                  // R1: the loser of two lineages stops, and joins the winner
	// R2: installed is the successor of one's own configuration only
	ruleChain
	ruleOneEpoch  // R3: acknowledgements of one epoch are counted together
	ruleLearn     // R3: voters of a new epoch count all members as renewed
	ruleMargin    // R3: quiet lasts longer than a lease
	ruleCanvass   // R4: voters are asked before they are bound
	ruleSure      // R4: what all agree on does not wait for what they do not agree on
	ruleFresh     // R4: what a voter said to a canvass counts for a while
	ruleSeal      // R4: a voter that accepts acknowledges no more
	ruleQuiet     // R4: a voter accepts when the evicted have no right any more
	ruleFinish    // R4: sealed voters finish the register
	ruleStopped   // R4: a voter that was stopped suspects nobody
	ruleLate      // R5: an answer that leaves after the right is marked
	ruleSuspended // R5: a stop that the clock has not seen ends the right
	ruleDrift     // R5: fast voters do not count
	// R6: gone is a line that ended, and then an address that refuses
	ruleBoth
	ruleDoor     // R6: the right is given up before the door is closed
	ruleLines    // R6: the right is given up when lines to most voters end
	ruleReady    // R7: voters are those that all members know
	ruleMass     // R7: many are evicted after a longer silence only
	ruleStepDown // R10: an owner that most do not reach gives way
	// R10: a voter acknowledges nothing to a member that it does not reach and that has no right
	ruleBothWays
	ruleSecede      // R11: a child needs the answers of all
	ruleVoteOnce    // R12: a boot votes once
	ruleFoundedWins // R12: nobody founds where somebody answers as founded
	ruleRival       // R13: a fork names its rival
	ruleUndecided   // R13: a half that has accepted a successor does not fork
	ruleHalf        // R13: of a pair with others that hear both one half goes on
	ruleGrow        // R13: the losing half admits nobody
	ruleName        // property 7: a name in use is refused
)

func (p *Params) keeps(r rule) bool { return p.without&r == 0 }
