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

// traffic is what clients do. They ask at their own pace, whatever becomes of what they asked before.
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
}

// clients draw the traffic of a world.
type clients struct {
	world    *world
	dice     *rand.Rand
	zipf     *rand.Zipf
	keys     []string
	sequence uint64 // of the last ID drawn
	left     int    // requests still to come
}

// clientOrigin is where the IDs of clients come from. They are one program here: it never draws an ID twice.
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

// next asks, and lets the one after it follow.
func (c *clients) next() {
	if c.left == 0 {
		c.world.rest()
		return
	}
	c.left--
	c.ask()
	pause := time.Duration(0)
	if !c.chance(c.world.plan.traffic.crowd) {
		pause = time.Duration(c.dice.ExpFloat64() * float64(c.world.plan.traffic.gap))
	}
	c.world.at(c.world.now+pause, c.next)
}

func (c *clients) chance(part float64) bool { return part > 0 && c.dice.Float64() < part }

// ask draws a request and sends it to some nodes.
func (c *clients) ask() {
	t := &c.world.plan.traffic
	r := &request{patience: cluster.DefaultDeadline}
	switch {
	case c.chance(t.broken):
		r.broken = true
		r.items = c.nonsense()
	case c.chance(t.together):
		r.atomic = true
		key := c.key()
		for range 2 + c.dice.IntN(3) {
			r.items = append(r.items, c.item(key))
		}
		if c.chance(0.1) {
			r.items[0].Key = c.key()
		}
		for i := range r.items {
			if r.items[i].Op != cluster.OpTake {
				r.broken = true
			}
		}
	case c.chance(t.batch):
		for range 1 + c.dice.IntN(20) {
			r.items = append(r.items, c.item(c.key()))
		}
	default:
		r.items = append(r.items, c.item(c.key()))
	}
	switch {
	case c.chance(t.hurry):
		r.patience = 150*time.Millisecond + time.Duration(c.dice.Int64N(int64(300*time.Millisecond)))
	case c.chance(t.patience):
		r.patience = time.Duration(1+c.dice.IntN(10)) * time.Second
	}
	c.send(r)
}

// send has a node, or several one after the other, hear of r. Repeats come within the time in which an owner
// remembers, less what messages and second attempts may take.
func (c *clients) send(r *request) {
	w := c.world
	w.judge.posed(r)
	visits := []time.Duration{0}
	if !r.broken && c.chance(w.plan.traffic.again) {
		for i := range r.items {
			c.sequence++
			r.items[i].ID = cluster.ID{Origin: clientOrigin, Sequence: c.sequence}
		}
		for range 1 + c.dice.IntN(2) {
			visits = append(visits, time.Duration(c.dice.Int64N(int64(700*time.Millisecond))))
		}
	}
	r.open = len(visits)
	for _, later := range visits {
		m := w.machines[c.dice.IntN(len(w.machines))]
		if later == 0 {
			w.visit(m, r)
		} else {
			w.at(w.now+later, func() { w.visit(m, r) })
		}
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
			it.Cost = rule.limit.Capacity() + c.dice.Int64N(2)
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

func mustLimit(s limiter.Spec) *limiter.Limit {
	l, err := limiter.New(s)
	if err != nil {
		panic(fmt.Sprintf("sim: drew a limit that is none: %v", err))
	}
	return l
}
