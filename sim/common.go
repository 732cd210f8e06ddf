package sim

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/ring"
)

// common is what all judges of a world share: what they have found, the keys that somebody asked
// for, and which process has which partition.
type common struct {
	world *world
	findings
	register
	custody
	copying
	placements map[*cluster.View]*placement // of the members that they show
}

// findings are what judges have found.
type findings struct {
	checked  [promises]uint64 // how often each promise was looked at
	allowed  allowed          // what was let pass
	requests RequestReport
	failure  *Failure
}

// register is the accounts of all keys that somebody asked for.
type register struct {
	accounts map[string]map[string]*account // by limit and key
	lately   [latelyFound]found             // of accounts
	order    []*account                     // as they were opened
	tallies  map[string]*LimitReport        // by limit
	heldOf   map[string]bool                // the limits of which units are set aside
}

// custody is which process has which partition, as far as gifts and decisions tell.
type custody struct {
	gifts   []time.Duration // when a partition was last given to somebody
	givers  []*process      // that gave it
	takers  []*process      // that took it then; nil: nobody has
	holders []*process
	// when a process was first seen to hold a partition that it was not given
	claims []time.Duration
	// when somebody was last told what is remembered of a partition
	recalled []time.Duration
	laid     []laying              // of each partition
	tied     map[int]time.Duration // when one of two that do not reach each other has last decided
	// what a process had said when it was last seen to hold a partition
	held    map[tenure]lastHeld
	tenants map[int][]*process // of a partition, in the order in which they were first seen
	turns   uint64             // notes in held
}

func newCommon(w *world) *common {
	never := slices.Repeat([]time.Duration{-warmUp}, ring.Partitions)
	c := &common{
		world: w, placements: make(map[*cluster.View]*placement),
		register: register{
			accounts: make(map[string]map[string]*account), tallies: make(map[string]*LimitReport),
			heldOf: w.plan.holding(),
		},
		custody: custody{
			gifts: never, claims: slices.Clone(never), recalled: slices.Clone(never),
			holders: make([]*process, ring.Partitions), givers: make([]*process, ring.Partitions),
			takers: make([]*process, ring.Partitions),
			laid:   slices.Repeat([]laying{{last: -warmUp, other: -warmUp}}, ring.Partitions),
			held:   make(map[tenure]lastHeld), tied: make(map[int]time.Duration),
			tenants: make(map[int][]*process),
		},
	}
	for i := range w.rules {
		c.tallies[w.rules[i].limit.Name] = newLimitReport(&w.rules[i])
	}
	return c
}

// fail breaks a promise, and ends the world with it. Only the first failure counts.
func (j *common) fail(p promise, format string, args ...any) {
	if j.failure == nil {
		j.failure = &Failure{
			Promise: promiseWords[p][0], Says: promiseWords[p][1], AtMS: millis(j.world.now),
			Detail: fmt.Sprintf(format, args...), Events: j.world.trace.last(j.world.machines),
		}
	}
}

// panicked makes a failure of a panic.
func (j *common) panicked(p any) {
	where := j.world.tasks.panicAt
	if where == "" {
		where = panicSite()
	}
	j.fail(sound, "%v\nin %s", p, where)
}

// found is an account that was lately asked for. A key is asked for some times in a row, as the
// same string of memory: where that lies says where to look here first.
type found struct {
	account *account
	limit   string
}

const latelyFound = 1 << 10 // a power of two

func (j *common) account(limit, key string) *account {
	at := uint64(uintptr(unsafe.Pointer(unsafe.StringData(key)))) +
		uint64(uintptr(unsafe.Pointer(unsafe.StringData(limit))))<<20
	f := &j.lately[at*0x9e3779b97f4a7c15>>32%latelyFound]
	if f.account == nil || f.account.key != key || f.limit != limit {
		*f = found{j.accountOf(limit, key), limit}
	}
	return f.account
}

func (j *common) accountOf(limit, key string) *account {
	a := j.accounts[limit][key]
	if a == nil {
		s := j.specOf(limit, key)
		a = &account{
			counts: 1, spec: s, key: key, hash: limiter.Hash(key),
			owner: j.world.owner(key), supply: curveOf(s, j.clocks()), heard: newWindow(),
			spare: newWindow(),
		}
		a.spares = j.spare(a, 0)
		if s.Consistency == limiter.Replicated {
			a.counts = int64(len(j.world.machines))
			a.replica, a.supply = newReplica(), curveOf(s, max(2, len(j.world.machines)))
			a.supply.rate *= a.counts
		}
		a.adrift = s.Calendar != 0 && j.world.plan.outOfStep()
		if j.heldOf[limit] && !s.Unlimited {
			a.held = newHeld()
		}
		a.tally = j.tallies[limit]
		if j.accounts[limit] == nil {
			j.accounts[limit] = make(map[string]*account)
		}
		j.accounts[limit][key] = a
		j.order = append(j.order, a)
	}
	return a
}

// clocks is by how many clocks a key may be decided.
func (j *common) clocks() int {
	if j.world.plan.quiet() {
		return 1
	}
	return max(2, len(j.world.machines)) // a machine that boots has another clock
}

// spare is what the shares of all nodes supply. Each splits the limit by the number of members that
// it knows of, and one that knows of nobody else has all of it.
func (j *common) spare(a *account, bound int64) curve {
	c := spareCurve(a.spec, 1, max(bound, capacityOf(a.spec)))
	c.capacity *= int64(len(j.world.machines))
	c.rate *= int64(len(j.world.machines))
	c.each *= int64(len(j.world.machines))
	return c
}

func (j *common) carriage() time.Duration {
	if j.world.plan.sky == calm {
		return carriage
	}
	return longCarriage
}

// sure reports whether nothing has kept p from speaking with all others lately, so that nothing
// that it knows may be lost and nobody may take it for dead.
func (j *common) sure(p *process) bool {
	w := j.world
	return w.plan.sky == calm && (!p.dead || p.departed)
}

// denial counts a denial, and whether nobody can say that it is too early.
func (j *common) denial(untold bool) {
	if j.allowed.of[anyDenial]++; untold {
		j.allowed.used[untoldDenial]++
	}
}

// inDoubt reports whether it is open what is set aside.
func (j *common) inDoubt(a *account) bool { return j.world.now < a.held.doubted }

// counters are what p has said that its table holds for an account. The right to decide runs out
// when all timers have stopped, so the table itself would answer for nothing.
func (j *common) counters(p *process) func(*account) limiter.Decision {
	now, found := p.now(), make(map[*account]limiter.Decision)
	for i := range p.counters {
		c := &p.counters[i]
		if a := j.accounts[c.limit][c.key]; a != nil {
			found[a] = c.decision
		}
	}
	return func(a *account) limiter.Decision {
		if d, has := found[a]; has {
			return d
		}
		return new(naiveState).peek(now, a.spec, 0)
	}
}
