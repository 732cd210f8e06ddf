package sim

import (
	"math/rand/v2"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// replay is a log of requests that happen once more: the pauses between them are those of the log.
type replay struct {
	file     string
	limits   []string
	logged   []logged // by time
	first    limiter.Instant
	skipped  int // lines that could not be read
	speed    float64
	from     time.Duration
	patience time.Duration
}

// at is when the i-th request comes.
func (r *replay) at(i int) time.Duration {
	return r.from + time.Duration(float64(r.logged[i].at-int64(r.first))/r.speed)
}

// player has the requests of a log come once more.
type player struct {
	*replay
	world *world
	dice  *rand.Rand
	done  int
}

func (p *player) next(a *arrival) bool {
	if p.done == len(p.logged) || p.at(p.done) > p.world.plan.length {
		return false
	}
	l := &p.logged[p.done]
	*a = arrival{at: p.at(p.done), atomic: len(p.limits) > 1, patience: p.patience, roams: true}
	if a.lone(p.world); len(p.limits) > 1 {
		a.items = make([]cluster.Item, len(p.limits))
	}
	for i, name := range p.limits {
		a.items[i] = cluster.Item{Limit: name, Key: l.key, Cost: l.cost}
	}
	a.calls[0] = calling{node: p.dice.IntN(len(p.world.machines))}
	p.done++
	return true
}
