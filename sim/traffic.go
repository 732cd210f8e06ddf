package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// arrival is one request of the traffic, as data: what is asked, when, and of which nodes.
type arrival struct {
	at       time.Duration
	items    []cluster.Item
	atomic   bool
	broken   bool          // has to be refused
	patience time.Duration // from the question to the deadline, on the node's clock
	calls    []calling     // one, or several that ask the same under the same IDs
	roams    bool          // the client goes to another node at once if one is down
	retry    retry
	of       cluster.ID // a reservation: it comes only if that was granted
	slip     *slip      // that items and calls are written on, if nobody else has them
}

// slip is room for a request of one item and one visit. The world writes on it again when that is
// over.
type slip struct {
	items [1]cluster.Item
	calls [1]calling
}

// lone has a be written on a slip.
func (a *arrival) lone(w *world) {
	if n := len(w.callers.slips); n > 0 {
		a.slip, w.callers.slips = w.callers.slips[n-1], w.callers.slips[:n-1]
	} else {
		a.slip = new(slip)
	}
	a.items, a.calls = a.slip.items[:], a.slip.calls[:]
}

// calling is a client that brings a request to a node, some time after it arose.
type calling struct {
	node  int
	after time.Duration
}

// source is where the traffic of a world comes from.
type source interface {
	// next is the request after the last one, and false when there is none any more. Times never go
	// back.
	next(a *arrival) bool
}

// source is that of the plan.
func (w *world) source() source {
	if w.plan.traffic.holds {
		return newHolders(w)
	}
	if w.plan.traffic.trees {
		return newTreeClients(w)
	}
	if w.plan.traffic.requests > 0 {
		return newClients(w)
	}
	sources := []source{&script{w.plan.script}}
	for i := range w.plan.replays {
		sources = append(sources, &player{
			replay: &w.plan.replays[i], world: w,
			dice: substream(w.plan.seed, uint64(i)<<32),
		})
	}
	for i := range w.plan.demands {
		sources = append(sources, newFlow(w, &w.plan.demands[i], uint64(i)))
	}
	return mix(sources...)
}

// script is traffic that is known in advance, by time.
type script struct{ arrivals []arrival }

func (s *script) next(a *arrival) bool {
	if len(s.arrivals) == 0 {
		return false
	}
	*a = s.arrivals[0]
	s.arrivals = s.arrivals[1:]
	return true
}

// clients draw the traffic of a world.
type clients struct {
	world    *world
	dice     *rand.Rand
	zipf     *rand.Zipf
	keys     []string
	sequence uint64        // of the last ID drawn
	left     int           // requests still to come
	at       time.Duration // when the next one comes
}

// clientOrigin is where the IDs of clients come from. They are one program here: it never draws an
// ID twice.
const clientOrigin = 1 << 40

func newClients(w *world) *clients {
	c := &clients{world: w, dice: stream(w.plan.seed, trafficStream), left: w.plan.traffic.requests}
	c.zipf = rand.NewZipf(c.dice, 1.2, 1, uint64(w.plan.traffic.keys-1))
	c.keys = make([]string, w.plan.traffic.keys)
	for i := range c.keys {
		c.keys[i] = keyName(i)
	}
	return c
}

// keyName is the i-th key: short ones, some that are no text, and some as long as keys may be.
func keyName(i int) string {
	switch i % 10 {
	case 4:
		return fmt.Sprintf("\x00\xff%c", i)
	case 7:
		name := fmt.Sprintf("key-%d-", i)
		return name + strings.Repeat("x", cluster.MaxKey-len(name))
	}
	return fmt.Sprintf("key-%d", i)
}

// next draws a request, and when the one after it comes.
func (c *clients) next(a *arrival) bool {
	if c.left == 0 {
		return false
	}
	c.left--
	c.arrival(a)
	if !c.chance(c.world.plan.traffic.crowd) {
		c.at += time.Duration(c.dice.ExpFloat64() * float64(c.world.plan.traffic.gap))
	}
	return true
}

func (c *clients) chance(part float64) bool { return part > 0 && c.dice.Float64() < part }

func (c *clients) arrival(a *arrival) {
	t := &c.world.plan.traffic
	*a = arrival{at: c.at, patience: cluster.DefaultDeadline}
	switch {
	case c.chance(t.broken):
		a.broken = true
		a.items = c.nonsense()
	case c.chance(t.together):
		a.atomic = true
		key := c.key()
		for range 2 + c.dice.IntN(3) {
			a.items = append(a.items, c.item(key))
		}
		if c.chance(0.1) {
			a.items[0].Key = c.key()
		}
		for i := range a.items {
			if a.items[i].Op != cluster.OpTake {
				a.broken = true
			}
		}
	case c.chance(t.batch):
		for range 1 + c.dice.IntN(20) {
			a.items = append(a.items, c.item(c.key()))
		}
	default:
		a.lone(c.world)
		a.items[0] = c.item(c.key())
	}
	switch {
	case c.chance(t.hurry):
		a.patience = 150*time.Millisecond +
			time.Duration(c.dice.Int64N(int64(300*time.Millisecond)))
	case c.chance(t.patience):
		a.patience = time.Duration(1+c.dice.IntN(10)) * time.Second
	}
	c.call(a)
}

// call draws the nodes that hear of a: one, or several one after the other. Repeats come within the
// time in which an owner remembers, less what messages and second attempts may take.
func (c *clients) call(a *arrival) {
	repeats := 0
	if !a.broken && c.chance(c.world.plan.traffic.again) {
		for i := range a.items {
			c.sequence++
			a.items[i].ID = cluster.ID{Origin: clientOrigin, Sequence: c.sequence}
		}
		repeats = 1 + c.dice.IntN(2)
	}
	a.calls = append(a.calls[:0], calling{node: c.dice.IntN(len(c.world.machines))})
	for range repeats {
		after := time.Duration(c.dice.Int64N(int64(700 * time.Millisecond)))
		a.calls = append(a.calls, calling{node: c.dice.IntN(len(c.world.machines)), after: after})
	}
}

func (c *clients) key() string {
	switch c.world.plan.traffic.skew {
	case "zipf":
		return c.keys[c.zipf.Uint64()]
	case "hot":
		if c.chance(0.9) {
			return c.keys[0]
		}
	}
	return c.keys[c.dice.IntN(len(c.keys))]
}

func (c *clients) item(key string) cluster.Item {
	rule := &c.world.rules[c.dice.IntN(len(c.world.rules))]
	it := cluster.Item{Limit: rule.limit.Name, Key: key, Cost: 1}
	if rule.inline {
		it.Limit, it.Inline = "", mustLimit(rule.limit.Spec)
	}
	if c.chance(c.world.plan.traffic.odd) {
		switch x := c.dice.IntN(100); {
		case x < 15:
			it.Op = cluster.OpPeek
			it.Cost = c.dice.Int64N(4)
		case x < 18:
			it.Op = cluster.OpReset
		case x < 30:
			it.Cost = 0
		case x < 50:
			it.Cost = -1 - c.dice.Int64N(4)
		case x < 52:
			it.Cost = math.MinInt64
		case x < 55:
			it.Cost = math.MaxInt64
		case x < 60:
			it.Cost = capacityOf(&rule.limit.Spec) + c.dice.Int64N(2)
		default:
			it.Cost = 2 + c.dice.Int64N(9)
		}
	}
	return it
}

// nonsense are items that every node must refuse, whatever else is among them.
func (c *clients) nonsense() []cluster.Item {
	items := []cluster.Item{c.item(c.key())}
	bad := c.item(c.key())
	switch c.dice.IntN(7) {
	case 0:
		bad.Key = ""
	case 1:
		bad.Key = strings.Repeat("k", cluster.MaxKey+1)
	case 2:
		bad.Limit, bad.Inline = "nobody knows this one", nil
	case 3:
		bad.Limit, bad.Inline = "", nil
	case 4:
		known := c.world.rules[0]
		bad.Limit, bad.Inline = "", mustLimit(known.limit.Spec)
		if known.inline { // nobody knows it by that name
			bad.Key = ""
		}
	case 5:
		return slices.Repeat(items, cluster.MaxItems+1)
	case 6:
		return nil
	}
	return append(items, bad)
}

func mustLimit(s limiter.Spec, except ...limiter.Override) *limiter.Limit {
	l, err := limiter.New(s, except...)
	if err != nil {
		panic(fmt.Sprintf("sim: drew a limit that is none: %v", err))
	}
	return l
}
