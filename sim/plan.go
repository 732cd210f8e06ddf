package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// plan is the whole of a world's configuration, before the world begins: plain data, drawn from a
// seed (draw.go) or written down in a scenario. The rest (which message is lost, what each client
// asks) is drawn while the world runs, from two more streams of the same seed.
type plan struct {
	seed     uint64
	sky      sky
	machines []machinePlan
	weather  weather
	gossip   pace
	limits   []rule
	except   map[string][]limiter.Override // from limits, by name
	traffic  traffic
	script   []arrival     // requests that are known in advance, by time
	replays  []replay      // of logs
	demands  []demand      // and others at some rate; if traffic draws requests, these are none
	length   time.Duration // from the first request to the last
	faults   []fault       // by time

	founding

	distances []distance // of machines that lie apart
	liar      *liarPlan  // nil: no member lies

	sweepEvery time.Duration
	saveEvery  time.Duration // of machines with a disk
	table      tableSize     // of each node
	// all promises are demanded, also those that not every world of seeds is held to
	strict bool
}

// founding is what the cluster of a world is founded with.
type founding struct {
	copies ownership.Copies
	secret ownership.Secret // that keys are placed under
}

// sky is the general kind of a world. It decides which promises hold in it.
type sky string

const (
	calm   sky = "calm"   // nothing is lost, nobody fails: every promise holds without exception
	lossy  sky = "lossy"  // messages get lost and may take longer than anybody waits
	outage sky = "outage" // machines crash, freeze, or are cut off from each other as well
)

// machinePlan is a machine as it stands when the world begins.
type machinePlan struct {
	clock clock
	agent bool // it owns no keys
	later bool // it is not there yet: it has to join
	zone  string
	disk  bool // its node starts with what the one before has written down
}

// rule is a limit of the world: one that all nodes know by name, or one that clients bring along.
type rule struct {
	limiter.Spec
	inline bool
}

// weather is what a message meets on its way. A delay is near, plus something exponential with the
// given mean, but at most far.
type weather struct {
	near, mean, far time.Duration
	loss            float64 // part of the messages that get lost
	twice           float64 // part of the messages that arrive twice
	inOrder         bool    // a line delivers in the order of sending, as a stream does
}

func (x *weather) delay(dice *rand.Rand) time.Duration {
	return min(x.far, x.near+time.Duration(dice.ExpFloat64()*float64(x.mean)))
}

// distance is what messages from one machine to another take longer than others.
type distance struct {
	from, to int
	more     time.Duration
}

// fault is something that goes wrong, or is put right again.
type fault struct {
	at   time.Duration
	kind kind // crashes, boots, freezes, thaws, cuts, mends, joins, leaves, restarts, rolls, steps
	node int
	peer int           // of cuts and mends: nothing passes from node to peer
	by   time.Duration // of steps: by how much somebody sets the wall clock
}

// partition is the partition of the key with this hash.
func (p *plan) partition(hash uint64) int { return ring.PartitionUnder(uint64(p.secret), hash) }

// firstOwner is the id of the machine that owns key when the world begins; empty if none does.
func (p *plan) firstOwner(key string) string {
	return p.firstPlacement().ownerOf(p.partition(limiter.Hash(key)))
}

// firstPlacement is that of the members that are there when the world begins.
func (p *plan) firstPlacement() *placement {
	var ids []string
	for i, m := range p.machines {
		if !m.agent && !m.later {
			ids = append(ids, machineID(i))
		}
	}
	return placed(ids)
}

// quiet reports whether no key ever changes hands in this world.
func (p *plan) quiet() bool { return p.sky == calm && len(p.faults) == 0 }

// graceful reports whether a fault is none: nodes come and go as they should, and clocks are set.
func graceful(k kind) bool {
	return k == joins || k == leaves || k == restarts || k == rolls || k == steps
}

// outOfStep reports whether clocks are not all about right, or somebody sets one.
func (p *plan) outOfStep() bool {
	return slices.ContainsFunc(p.faults, func(f fault) bool {
		return f.kind == steps
	}) || slices.ContainsFunc(p.machines, func(m machinePlan) bool {
		return time.Duration(m.clock.start-p.machines[0].clock.start).Abs() > inStep
	})
}

// oneClock reports whether all machines' clocks show the same.
func (p *plan) oneClock() bool {
	return !slices.ContainsFunc(p.machines, func(m machinePlan) bool {
		return m.clock != p.machines[0].clock
	}) &&
		!slices.ContainsFunc(p.faults, func(f fault) bool { return f.kind == steps })
}

// failsTwice reports whether more than one thing fails in this world.
func (p *plan) failsTwice() bool {
	n := 0
	for _, f := range p.faults {
		if !graceful(f.kind) && f.kind != mends && f.kind != thaws && f.kind != boots {
			n++
		}
	}
	return n > 1
}

// moves reports whether the number of nodes changes in this world.
func (p *plan) moves() bool {
	return slices.ContainsFunc(p.faults, func(f fault) bool {
		return moving(f.kind) || f.kind == rolls
	})
}

// traffic is what clients do. They ask at their own pace, whatever becomes of what they asked
// before.
type traffic struct {
	requests int
	gap      time.Duration // mean pause between two
	keys     int
	skew     string // how keys are drawn: uniform, zipf, hot (nine of ten ask for the first)

	// Parts of the requests, 0 … 1.
	crowd    float64 // come at the same instant as the one before
	batch    float64 // have up to 20 items
	together float64 // have up to 4 items, all or nothing, nearly always of one key
	again    float64 // are repeated under the same IDs, once or twice, at any node
	odd      float64 // of all items: cost 0, back, several, too much; or peek, or reset
	broken   float64 // are in error
	hurry    float64 // leave the cluster less time than usual
	patience float64 // leave it more

	holds bool // clients set aside, and ask often: another kind of traffic (holders.go)
	trees bool // limits are in a tree (draw_trees.go)
}
