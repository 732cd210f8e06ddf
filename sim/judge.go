package sim

import (
	"fmt"
	"slices"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// judge watches a world and checks every decision in it against the reference, in two ways that
// share nothing: from inside, by deciding everything once more as one naive limiter would
// (reference.go); and from outside, by what clients saw (account.go).
type judge struct {
	world    *world
	accounts map[string]map[string]*account // by limit and key
	lately   [latelyFound]found             // of accounts
	order    []*account                     // as they were opened
	memories memories                       // what nodes decided under an ID
	gifts    []time.Duration                // when a partition was last given to somebody
	givers   []*process                     // that gave it
	troubles troubles                       // of the world
	holders  []*process                     // of partitions, as far as gifts and decisions tell
	// when a process was first seen to hold a partition that it was not given
	claims []time.Duration
	// when somebody was last told what is remembered of a partition
	recalled []time.Duration
	laid     []laying                // of each partition
	said     sayings                 // what clients may hear under an ID
	granted  grants                  // what was set aside of several owners
	checked  [promises]uint64        // how often each promise was looked at
	allowed  allowed                 // what was let pass
	tallies  map[string]*LimitReport // by limit
	requests RequestReport
	loss     LossReport
	presence presence
	cold     time.Duration // when the last member was gone that could know anything
	linesNew bool          // what was cut or mended is still to be looked at
	linesAt  time.Duration // when that was
	failure  *Failure
	deciders []decider             // by partition
	tied     map[int]time.Duration // when one of two that do not reach each other has last decided
	// how often a node had begun to hold anything when it was last seen to hold a partition
	held    map[tenure]uint64
	scratch scratch
	books   books
	backBy  time.Duration // when all that was restored from files must have been returned
	trees   *treeJudge    // of worlds of trees, else nil: then no account is opened
}

// scratch are buffers for one event; no event uses them while another does.
type scratch struct {
	items []asked
	got   []limiter.Decision
}

func newJudge(w *world) *judge {
	j := &judge{
		world: w, accounts: make(map[string]map[string]*account), granted: newGrants(),
		cold: -warmUp, gifts: slices.Repeat([]time.Duration{-warmUp}, ring.Partitions),
		holders: make([]*process, ring.Partitions),
		givers:  make([]*process, ring.Partitions), troubles: troublesOf(w.plan.faults),
		recalled: slices.Repeat([]time.Duration{-warmUp}, ring.Partitions),
		claims:   slices.Repeat([]time.Duration{-warmUp}, ring.Partitions),
		laid:     slices.Repeat([]laying{{last: -warmUp, other: -warmUp}}, ring.Partitions),
		tallies:  make(map[string]*LimitReport), held: make(map[tenure]uint64),
		tied: make(map[int]time.Duration), books: newBooks(w),
	}
	for i := range w.rules {
		j.tallies[w.rules[i].limit.Name] = newLimitReport(&w.rules[i])
	}
	j.trees = newTreeJudge(j)
	return j
}

// fail breaks a promise, and ends the world with it. Only the first failure counts.
func (j *judge) fail(p promise, format string, args ...any) {
	if j.failure == nil {
		j.failure = &Failure{
			Promise: promiseWords[p][0], Says: promiseWords[p][1], AtMS: millis(j.world.now),
			Detail: fmt.Sprintf(format, args...), Events: j.world.trace.last(j.world.machines),
		}
	}
}

// panicked makes a failure of a panic.
func (j *judge) panicked(p any) {
	where := j.world.tasks.panicAt
	if where == "" {
		where = panicSite()
	}
	j.fail(sound, "%v\nin %s", p, where)
}
