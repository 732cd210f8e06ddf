package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/ring"
)

// partitionSet is some partitions.
type partitionSet [(ring.Partitions + 63) / 64]uint64

func (b *partitionSet) set(list []uint16, to bool) {
	for _, k := range list {
		if b[k/64] &^= 1 << (k % 64); to {
			b[k/64] |= 1 << (k % 64)
		}
	}
}

func (b *partitionSet) has(k int) bool { return b != nil && b[k/64]>>(k%64)&1 != 0 }

// copying is which copies there are, as members tell each other. If all others leave, no member is
// left to keep one, and the holder has them end: from then on it alone knows what was charged.
type copying struct {
	kept  map[*process]*partitionSet // by the process that keeps them
	ended map[*process]*partitionSet // by the holder that stays, and has had them end
	// by the process that keeps one and its partition, when another process last began to copy it
	// there; only where messages get lost
	began map[tenure]time.Duration
}

// copies notes what a Move from one process to another says of copies.
func (j *common) copies(from, p *process, m *cluster.Move) {
	if len(m.Begin)+len(m.End) == 0 || j.world.plan.sky == calm {
		return
	}
	c := &j.copying
	if c.kept == nil {
		c.kept, c.ended = make(map[*process]*partitionSet), make(map[*process]*partitionSet)
		c.began = make(map[tenure]time.Duration)
	}
	if c.kept[p] == nil {
		c.kept[p] = new(partitionSet)
	}
	if c.ended[from] == nil {
		c.ended[from] = new(partitionSet)
	}
	c.kept[p].set(m.End, false)
	c.kept[p].set(m.Begin, true)
	c.ended[from].set(m.End, j.staysAlone(from))
	c.ended[from].set(m.Begin, false)
	if j.world.plan.weather.loss > 0 {
		for _, k := range m.Begin {
			c.began[tenure{p, int(k)}] = j.world.now
		}
	}
}

// staysAlone reports whether all other members that are there leave.
func (j *common) staysAlone(p *process) bool {
	return !p.leaving && !slices.ContainsFunc(j.world.machines, func(m *machine) bool {
		q := m.process
		return q != nil && q != p && m.role == cluster.RoleMember && !q.leaving
	})
}

// isBare reports whether p, which stays alone, has had the copies of a partition end, and nobody
// keeps one.
func (j *common) isBare(p *process, k int) bool {
	return j.copying.ended[p].has(k) &&
		!slices.ContainsFunc(j.world.machines, func(m *machine) bool {
			return m.process != nil && m.process != p && j.copying.kept[m.process].has(k)
		})
}

// leavesBare notes the partitions of which nobody knows anything any more when p dies.
func (j *countedJudge) leavesBare(p *process) {
	if j.world.plan.sky == calm || !j.staysAlone(p) {
		return
	}
	for k := range ring.Partitions {
		if p.stated.decidesFor(k) && j.isBare(p, k) {
			if j.bare == nil {
				j.bare = make(map[int]time.Duration)
			}
			j.bare[k] = j.world.now
		}
	}
}

// coldOf is when the last process was gone that could know anything of a.
func (j *countedJudge) coldOf(a *account) time.Duration {
	if at, is := j.bare[j.world.plan.partition(a.hash)]; is {
		return max(j.cold, at)
	}
	return j.cold
}

// coldFor is from when on nobody can know of a, for a decision on it. A member that comes back with
// a file must say what is lacking in it; only in the end nobody is asked any more.
func (j *countedJudge) coldFor(a *account) time.Duration {
	switch {
	case j.atEnd:
		return j.coldOf(a)
	case j.someFile():
		return -warmUp
	}
	return j.cold
}

// someFile reports whether a member that is there began with a file.
func (j *countedJudge) someFile() bool {
	return slices.ContainsFunc(j.world.machines, func(m *machine) bool {
		return m.process != nil && m.role == cluster.RoleMember && m.process.restored != nil
	})
}
