package sim

import (
	"container/heap"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/cluster"
	"penstock/limiter"
)

// hold is what a client of a demand does if it reserves: it works for a while, with signs of life
// if that takes long, and says then what it has used; or it dies.
type hold struct {
	ttl       time.Duration // 0: it takes, and reserves nothing
	lasts     time.Duration // on average: evenly up to twice as long
	used      float64       // of what was reserved, on average: evenly up to twice as much
	abandoned float64       // part of the clients that die
}

// usualTTL is how long a reservation of a demand that does not say so lasts without a sign of life.
const usualTTL = 30 * time.Second

var holdFields = []field[hold]{
	{"for", sets(spanOf(time.Millisecond, 24*time.Hour), func(h *hold) *time.Duration {
		return &h.lasts
	})},
	{"ttl", sets(spanOf(limiter.MinTTL, limiter.MaxTTL), func(h *hold) *time.Duration {
		return &h.ttl
	})},
	{"used", func(_ *draft, n ast.Node, h *hold) (err error) {
		text := n.GetToken().Value
		number, percent := strings.CutSuffix(text, "%")
		h.used, err = strconv.ParseFloat(number, 64)
		if percent {
			h.used /= 100
		}
		if err != nil || !(h.used >= 0 && h.used <= 10) {
			return fmt.Errorf(
				"%.40q is no part of what was reserved; write 60%% or 0.6, up to 1000%%", text)
		}
		return nil
	}},
	{"abandoned", sets(fraction, func(h *hold) *float64 { return &h.abandoned })},
}

// reserve reads what becomes of the reservations of a demand.
func (d *draft) reserve(n ast.Node, s *demand) error {
	h := hold{ttl: usualTTL, used: 0.5}
	places := fields(d, n, "reserve", holdFields, &h)
	if places != nil && places["for"] == nil {
		return errors.New("needs for: how long it takes until it is known what was used")
	}
	s.hold = h
	return nil
}

// held looks whether permits are reserved, and nothing is that cannot be.
func (d *draft) held(n ast.Node, limits []string, reserves bool) {
	for _, name := range limits {
		l := d.page.Limit(name)
		switch {
		case l == nil:
		case l.Algorithm == limiter.Concurrency && !reserves:
			d.page.Fault(n, "limit",
				fmt.Sprintf("%q counts permits, which are held for a while: say so with reserve: "+
					"{for: 2s}", name))
		case l.Consistency == limiter.Replicated && reserves:
			d.page.Fault(n, "reserve",
				fmt.Sprintf("%q is replicated; only a limit that one node decides on can be held",
					name))
		}
	}
}

// nextHeld is the next request of clients that reserve: of a new one, or a later one of another.
func (f *flow) nextHeld(next *arrival) bool {
	for !f.over && (len(f.ready) == 0 || f.ready[0].at >= f.now) {
		var a arrival
		if f.over = !f.begin(&a); f.over {
			break
		}
		f.reserves(a)
	}
	if len(f.ready) == 0 {
		return false
	}
	*next = heap.Pop(&f.ready).(pendingArrival).arrival
	return true
}

func (f *flow) add(a arrival) {
	f.last++
	heap.Push(&f.ready, pendingArrival{a, f.last})
}

// reserves makes a reservation of a, and adds it with all that comes of it.
func (f *flow) reserves(a arrival) {
	for i := range a.items {
		it := &a.items[i]
		f.world.callers.told.made++
		it.Op, it.ID = cluster.OpReserve, cluster.ID{Origin: clientOrigin, Sequence: reservedIDs +
			f.world.callers.told.made}
		it.Hold = &cluster.HoldTerms{TTL: f.hold.ttl, Holder: f.name}
	}
	f.add(a)
	later := func(at time.Duration, op cluster.Op, used float64) {
		b := arrival{
			at: at, patience: f.patience, roams: true, of: a.items[0].ID,
			calls: []calling{{node: f.dice.IntN(len(f.world.machines))}},
		}
		for i := range a.items {
			b.items = append(b.items, about(&a.items[i], op, int64(float64(a.items[i].Cost)*used),
				f.hold.ttl))
		}
		f.add(b)
	}
	if f.dice.Float64() < f.hold.abandoned {
		return
	}
	done := a.at + time.Duration(2*f.dice.Float64()*float64(f.hold.lasts))
	for at := a.at + f.hold.ttl/2; at < done; at += f.hold.ttl / 2 {
		later(at, cluster.OpExtend, 0)
	}
	later(done, cluster.OpSettle, 2*f.dice.Float64()*f.hold.used)
}

// reservedIDs is where the sequence numbers of demands' reservations begin.
const reservedIDs = 1 << 41
