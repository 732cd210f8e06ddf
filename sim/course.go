package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// course records what happens in a world over time, for tables and plots: what clients asked and
// got, how long they waited, what went over the lines, and what was admitted too much. It watches
// from outside, by what clients hear, and changes nothing. All its methods do nothing on a nil
// course.
type course struct {
	world  *world
	step   time.Duration   // of the time axis
	clocks int             // how many times they show
	start  limiter.Instant // what the first shows in the beginning
	limits []*LimitCourse
	byName map[string]*LimitCourse
	ticks  []Tick
	waits  waits // of the last of ticks, or of all that come after the last request
	marks  []MarkReport
	ends   time.Duration // the last of ticks
	marked int           // index in marks of the last that has begun
}

// LimitCourse is what became of the units of one limit, tick by tick.
type LimitCourse struct {
	Limit string      `json:"limit"`
	Ticks []LimitTick `json:"ticks"`
	Sum   LimitTick   `json:"sum"`
}

// LimitTick counts units of one limit in one step of the time axis.
type LimitTick struct {
	Asked    int64 `json:"asked"`    // retries included
	Ideal    int64 `json:"ideal"`    // what a single limiter admits of the same requests
	Admitted int64 `json:"admitted"` // what the cluster admits of them
	Degraded int64 `json:"degraded"` // of these, without the owner
	Denied   int64 `json:"denied"`
	Failed   int64 `json:"failed"` // got no answer
	Extra    int64 `json:"extra"`  // admitted beyond what the limit allows in any span of time
}

// Tick is one step of the time axis.
type Tick struct {
	Answers  int     `json:"answers"`
	P50MS    float64 `json:"p50_ms"` // how long clients waited for them
	P99MS    float64 `json:"p99_ms"`
	MostMS   float64 `json:"most_ms"`
	Messages int     `json:"messages"`
	Bytes    int     `json:"bytes"`
}

// MarkReport is something that was done to the world, and what came of it until the next.
type MarkReport struct {
	AtMS     float64 `json:"at_ms"`
	UntilMS  float64 `json:"until_ms"` // equal to the above if it happened at once
	What     string  `json:"what"`
	Extra    int64   `json:"extra"` // units
	Degraded int64   `json:"degraded"`
	Failed   int64   `json:"failed"`
	P99MS    float64 `json:"p99_ms"`
	// from its beginning to the last degraded or failed request; 0: there was none
	Settled float64 `json:"settled_ms"`
	at      time.Duration
	waits   waits
}

// keyCourse follows what is admitted for one key: the most, over all spans of time, by which it
// exceeds what the limit supplies. Whether the owner decided or somebody else makes no difference.
type keyCourse struct {
	limit   *LimitCourse
	spec    *limiter.Spec
	supply  curve
	window  window
	inForce inForce // if it is audited
	lately  lately  // of a sliding log
	extra   int64
	ideal   ideal // of one limiter that is asked everything at the instant at which it is asked
	permits permits
}

// asking is one item of a request, from its question to the end of its last visit.
type asking struct {
	key    *keyCourse
	number int // of the question, in the key's window
}

// mostTicks is how many steps the time axis has at most.
const mostTicks = 150

func newCourse(w *world, marks []mark) *course {
	c := &course{
		world: w, clocks: 1, byName: make(map[string]*LimitCourse),
	}
	c.step = stepOf(w.plan.length)
	for _, m := range w.machines {
		if m.clock != w.machines[0].clock || m.clock.drift != 0 {
			c.clocks = 2
		}
	}
	c.start = w.machines[0].clock.start
	for _, f := range w.plan.faults {
		if f.kind == steps { // a node that starts again goes by the new time
			c.clocks = 2
		}
	}
	for i := range w.rules {
		l := &LimitCourse{Limit: w.rules[i].limit.Name}
		c.limits, c.byName[l.Limit] = append(c.limits, l), l
	}
	c.marks = append(c.marks, MarkReport{What: "from the beginning"})
	for _, m := range marks {
		c.marks = append(c.marks, MarkReport{
			AtMS: millis(m.at), UntilMS: millis(m.until),
			What: m.what, at: m.at,
		})
	}
	return c
}

// stepOf is a step that people can read, of which a time axis has no more than mostTicks.
func stepOf(length time.Duration) time.Duration {
	for unit := time.Millisecond; ; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if step := n * unit; length/step <= mostTicks {
				return step
			}
		}
	}
}

func (c *course) tick() int {
	for c.world.now >= c.ends {
		if n := len(c.ticks); n > 0 && n < c.steps() {
			c.sumUp()
		}
		c.ticks = append(c.ticks, Tick{})
		c.ends += c.step
	}
	return len(c.ticks) - 1
}

// steps is how many the time axis has.
func (c *course) steps() int { return max(1, int((c.world.plan.length+c.step-1)/c.step)) }

// sumUp works out how long clients have waited in the last of ticks.
func (c *course) sumUp() {
	t := &c.ticks[min(len(c.ticks), c.steps())-1]
	t.Answers = c.waits.n
	t.P50MS, t.P99MS, t.MostMS = c.waits.quantiles()
	c.waits.reset()
}

// count is the place where what happens to l now is counted.
func (c *course) count(l *LimitCourse) *LimitTick {
	i := c.tick()
	for len(l.Ticks) <= i {
		l.Ticks = append(l.Ticks, LimitTick{})
	}
	return &l.Ticks[i]
}

// mark is what was done to the world last.
func (c *course) mark() *MarkReport {
	for c.marked+1 < len(c.marks) && c.marks[c.marked+1].at <= c.world.now {
		c.marked++
	}
	return &c.marks[c.marked]
}

// supplied is what the limit of k has supplied so far. Where clocks differ, a little more than that
// by any of them.
func (c *course) supplied(k *keyCourse) int64 {
	if audited(k.spec, c.clocks) {
		return k.supply.each * max(0, k.inForce.opened-1)
	}
	if c.clocks == 1 {
		return k.supply.supply(c.start, c.start.Add(c.world.now))
	}
	return k.supply.supply(0, limiter.Instant(c.world.now+c.world.now/500))
}

// posed begins to follow a request.
func (c *course) posed(r *request) {
	if c == nil || r.broken {
		return
	}
	now := c.start.Add(c.world.now)
	all := true
	for i := range r.items {
		it, a := &r.items[i], r.terms[i].account
		s, k := a.spec, c.key(a)
		k.window.begun += c.back(k, it)
		if r.asked == nil {
			r.asked = r.ask[:0]
		}
		r.asked = append(r.asked, asking{k, k.window.ask(c.supplied(k))})
		k.ideal.follow(now, s, it)
		c.returns(k, it)
		if !asksFor(it) {
			continue
		}
		c.count(k.limit).Asked += max(0, it.Cost)
		if r.atomic && !watches(s) {
			all = all && k.ideal.fits(now, s, it.Cost)
		}
	}
	for i := range r.items {
		it := &r.items[i]
		if !asksFor(it) || !all {
			continue
		}
		k := r.asked[i].key
		if k.ideal.takes(now, k.spec, it) {
			c.count(k.limit).Ideal += max(0, it.Cost)
		}
	}
}

func (c *course) key(a *account) *keyCourse {
	if a.seen == nil {
		a.seen = &keyCourse{
			limit: c.byName[a.spec.Name], spec: a.spec,
			supply: supplyOf(a.spec, c.clocks), window: newWindow(),
		}
	}
	return a.seen
}

// back is the most that an item can give back, in parts.
func (c *course) back(k *keyCourse, it *cluster.Item) int64 {
	full := func() int64 { return max(k.spec.Limit, k.spec.Burst) }
	switch {
	case it.Op == cluster.OpReset:
		return full() * k.supply.unit
	case it.Op == cluster.OpTake && it.Cost < 0:
		return min(-max(it.Cost, -1<<40), full()) * k.supply.unit
	}
	return 0
}

// heard notes what a client was told.
func (c *course) heard(r *request, out []cluster.Decision, took time.Duration) {
	if c == nil || r.broken {
		return
	}
	m, yes := c.mark(), true
	c.tick()
	c.waits.add(took)
	m.waits.add(took)
	for i := range out {
		yes = yes && out[i].Allowed
	}
	for i := range out {
		if out[i].Degraded {
			m.Degraded++
			m.Settled = millis(c.world.now - m.at)
		}
		c.heardOf(r, i, &out[i], yes || !r.atomic, took)
	}
	c.over(r)
}

// heardOf counts what a client was told of its i-th item; stands is false if that fell with others.
func (c *course) heardOf(r *request, i int, d *cluster.Decision, stands bool, took time.Duration) {
	it, k := &r.items[i], r.asked[i].key
	count := c.count(k.limit)
	switch {
	case it.Op == cluster.OpExtend:
		c.extended(k, it, d)
	case it.Op == cluster.OpSettle:
		c.settled(k, r.asked[i].number, it, d)
	case !asksFor(it) || it.Cost <= 0:
	case !d.Allowed || !stands || d.Shadow:
		count.Denied += it.Cost
	default:
		count.Admitted += it.Cost
		if d.Degraded {
			count.Degraded += it.Cost
		}
		if it.Op == cluster.OpReserve {
			c.reserved(k, it)
		} else {
			c.opens(k, took, d)
			c.admitted(k, r.asked[i].number, it.Cost)
			c.logged(k, took, it.Cost)
		}
	}
}

// admitted looks whether too much has been admitted for a key by now.
func (c *course) admitted(k *keyCourse, number int, cost int64) {
	k.window.admit(number, cost*k.supply.unit)
	over := k.window.excess(k.supply.capacity, c.supplied(k))
	if over > 0 {
		c.exceeds(k, (over+k.supply.unit-1)/k.supply.unit)
	}
}

// opens notes in which window something was admitted.
func (c *course) opens(k *keyCourse, took time.Duration, d *cluster.Decision) {
	if audited(k.spec, c.clocks) {
		k.inForce.admits(c.world.now, took, k.spec.Per, d.ResetAfter)
	}
}

// logged looks whether too much has been admitted in the last period of a sliding log.
func (c *course) logged(k *keyCourse, took time.Duration, cost int64) {
	if k.spec.Algorithm == limiter.SlidingLog {
		now := c.world.now
		c.exceeds(k, k.lately.admits(now, now-took, k.spec.Per,
			cost)-k.spec.Limit-k.window.begun/k.supply.unit)
	}
}

// exceeds notes by how much too much has been admitted for a key.
func (c *course) exceeds(k *keyCourse, extra int64) {
	if extra > k.extra {
		c.count(k.limit).Extra += extra - k.extra
		c.mark().Extra += extra - k.extra
		k.extra = extra
	}
}

// missed notes that a client gets no answer.
func (c *course) missed(r *request) {
	if c == nil || r.broken {
		return
	}
	m := c.mark()
	m.Failed++
	m.Settled = millis(c.world.now - m.at)
	for i := range r.items {
		c.count(c.byName[limitName(&r.items[i])]).Failed += max(0, r.items[i].Cost)
	}
	c.over(r)
}

// over ends a request, if no visit of it is left.
func (c *course) over(r *request) {
	if c == nil || r.broken || r.open > 0 {
		return
	}
	for i := range r.items {
		k := r.asked[i].key
		k.window.returned += c.back(k, &r.items[i])
		k.window.answer(r.asked[i].number)
	}
}

// finish works the sums out, at the end of the world.
func (c *course) finish() {
	if len(c.ticks) > 0 {
		c.sumUp()
	}
	for len(c.ticks) < c.steps() {
		c.ticks = append(c.ticks, Tick{})
	}
	c.ticks = c.cut(c.steps())
	for _, l := range c.limits {
		for len(l.Ticks) < len(c.ticks) {
			l.Ticks = append(l.Ticks, LimitTick{})
		}
		for i, t := range l.Ticks {
			l.Sum.add(t)
			if last := len(c.ticks) - 1; i > last { // answered after the last request
				l.Ticks[last].add(t)
			}
		}
		l.Ticks = l.Ticks[:len(c.ticks)]
	}
	for i := range c.marks {
		_, c.marks[i].P99MS, _ = c.marks[i].waits.quantiles()
	}
}

// cut folds what happened after the last request into the last tick.
func (c *course) cut(n int) []Tick {
	for i := n; i < len(c.ticks); i++ {
		c.ticks[n-1].Messages += c.ticks[i].Messages
		c.ticks[n-1].Bytes += c.ticks[i].Bytes
	}
	return c.ticks[:n]
}

func (t *LimitTick) add(o LimitTick) {
	t.Asked += o.Asked
	t.Ideal += o.Ideal
	t.Admitted += o.Admitted
	t.Degraded += o.Degraded
	t.Denied += o.Denied
	t.Failed += o.Failed
	t.Extra += o.Extra
}
