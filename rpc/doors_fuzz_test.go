package rpc

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/rpc/rpctest"
)

// visit is one input of FuzzDoorRequests: requests through the doors of a house, and what a naive
// limiter says of them.
type visit struct {
	house *house
	left  []byte
	run   int // of the house: no two have keys in common
	log   func(format string, a ...any)

	keys     []keyed
	sequence uint64 // of the latest id
	answered []remembered
	spoils   int
}

// keyed is a key of a meter.
type keyed struct {
	counter
	bound
	generation int
	touched    bool
}

// remembered is an item with an id, and its answer.
type remembered struct {
	asking
	reply
	at limiter.Instant
}

const (
	keysOfMeter = 2
	mostSteps   = 24
	mostItems   = 4 // of a list
	mostSpoils  = 3 // each may bring limits along, of which a client has some thousand at most
	// repeatWithin is for how long an answer is surely remembered.
	repeatWithin = 2 * time.Second
)

func newVisit(h *house, run int, in []byte) *visit {
	v := &visit{
		house: h, left: in, run: run, log: func(string, ...any) {},
		keys: make([]keyed, len(meters)*keysOfMeter), sequence: uint64(run) << 16,
	}
	h.clock.now = (h.clock.now/limiter.Instant(minute) + 2) * limiter.Instant(minute)
	for i := range v.keys {
		v.renew(i)
	}
	return v
}

// renew has the i-th key be as new.
func (v *visit) renew(i int) {
	m := meters[i/keysOfMeter]
	v.keys[i].counter, v.keys[i].bound = m.fresh(), m.bound
}

// retire takes another key for the i-th: of the old one it is not known what is used.
func (v *visit) retire(i int) {
	v.keys[i].generation++
	v.keys[i].touched = false
	v.renew(i)
}

func (v *visit) byte() (b byte) {
	if len(v.left) > 0 {
		b, v.left = v.left[0], v.left[1:]
	}
	return b
}

func (v *visit) now() int64 { return int64(v.house.clock.now) }

// key is what the i-th key is called. It says its numbers twice, so that no change of one byte
// makes another key of it.
func (v *visit) key(i int) string {
	k := append([]byte(meters[i/keysOfMeter].before), 'a'+byte(i))
	for _, n := range [...]int{v.run, v.run, v.keys[i].generation, v.keys[i].generation} {
		k = strconv.AppendInt(append(k, '.'), int64(n), 10)
	}
	return string(k)
}

func (v *visit) keyOf(a *asking) *keyed {
	return &v.keys[v.index(a)]
}

func (v *visit) index(a *asking) int {
	return int(a.of[len(a.meter.before)] - 'a')
}

// costs are those that a byte names; other bytes are small numbers.
var costs = []int64{
	1, 0, 2, 3, 5, 4, 6, 7, 8, -1, -2, -3, -7, 1 << 40, math.MaxInt64, math.MinInt64,
	math.MaxInt64 - 1, -1 << 40, math.MinInt64 + 1, math.MaxUint32, math.MaxInt32 + 1,
}

// item is the next item of a script.
func (v *visit) item(op op) asking {
	b := v.byte()
	i := int(b&31) % len(v.keys)
	a := asking{meter: meters[i/keysOfMeter], of: v.key(i), op: op}
	if op != opReset {
		if c := v.byte(); int(c) < len(costs) {
			a.cost = costs[c]
		} else {
			a.cost = int64(c%16) - 3
		}
	}
	if a.meter.bound.span == 0 { // what is given back there adds up
		a.cost = max(a.cost, -8)
	}
	if op == opTake {
		a.drain, a.report, a.named = b&32 != 0, b&64 != 0, b&128 != 0
	}
	return a
}

// way is the next way of a script for an item. It makes the item one that the way has words for.
func (v *visit) way(a *asking) *way {
	start := int(v.byte())
	for i := range doorWays {
		w := doorWays[(start+i)%len(doorWays)]
		if w.fits(a) {
			return w
		}
	}
	panic("no door has words for it")
}

// fits reports whether the way has words for an item. Commands of RL.* always drain.
func (w *way) fits(a *asking) bool {
	if w.name == "Redis" && strings.HasPrefix(a.meter.command, "RL.") {
		a.drain, a.report = true, false
	}
	return w.can(a)
}

// pauses are how long a script waits.
var pauses = []time.Duration{
	time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 999 * time.Millisecond,
	time.Nanosecond, 1500 * time.Millisecond, 10 * time.Second, 20 * time.Second, time.Minute,
	3*time.Second - 1, 3 * time.Second, 7 * time.Second, 10*time.Second - 1,
}

func (v *visit) pass() {
	b := v.byte()
	d := time.Duration(b) * 13 * time.Millisecond
	if int(b) < len(pauses) {
		d = pauses[b]
	}
	v.log("%v pass", d)
	v.house.clock.now = v.house.clock.now.Add(d)
	for i := range v.keys { // of these it is not sure what is known
		if b, ok := v.keys[i].counter.(*stepped); ok && b.forgettable(v.now()) {
			v.retire(i)
		}
	}
}

// play lets a script happen. An error says which promise was broken.
func (v *visit) play() (err error) {
	defer v.house.commands.hangUp()
	for steps := 0; len(v.left) > 0 && steps < mostSteps && err == nil; steps++ {
		switch b := v.byte() & 15; b {
		case 0, 1:
			v.pass()
		case 2:
			err = v.list(opReset, 1+int(v.byte()&1))
		case 3:
			err = v.list(opLook, 1)
		case 4:
			err = v.again()
		case 5:
			err = v.spoil()
		case 6:
			err = v.list(opTake, 2+int(v.byte())%(mostItems-1))
		case 7:
			err = v.together()
		case 8:
			err = v.faulty()
		case 9:
			err = v.hold()
		default:
			err = v.list(opTake, 1)
		}
	}
	if err != nil {
		return err
	}
	if err := v.lookAll(); err != nil {
		return err
	}
	return v.sweep()
}

// list asks about so many items by one way: in their order, and each by itself.
func (v *visit) list(op op, n int) error {
	first := v.item(op)
	w := v.way(&first)
	list := []asking{first}
	for ; w.lists && n > 1; n-- {
		if a := v.item(op); w.fits(&a) {
			list = append(list, a)
		}
	}
	return v.ask(w, list, false)
}

// send writes and sends a request.
func (v *visit) send(w *way, list []asking, atomic bool) ([]reply, error) {
	op := list[0].op
	b := w.write(list, atomic)
	replies, err := w.send(v.house, op, b)
	v.log("asked %s: %q: %+v, %v", w.name, b, replies, err)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	if replies != nil && len(replies) != len(list) {
		return nil, fmt.Errorf("%s: %d answers to %d items", w.name, len(replies), len(list))
	}
	return replies, nil
}

// ask asks, and compares the answers with those of the naive limiter. A faulty item must be
// refused, and charge nothing; the items beside it are refused too, or decided as ever.
func (v *visit) ask(w *way, list []asking, atomic bool) error {
	for i := range list {
		if strings.HasPrefix(w.name, "gRPC") && list[i].named {
			v.sequence++
			list[i].sequence = v.sequence
		}
	}
	replies, err := v.send(w, list, atomic)
	if err != nil {
		return err
	}
	anyWrong := slices.ContainsFunc(list, func(a asking) bool { return a.wrong != wrongNothing })
	if replies == nil {
		if !anyWrong {
			return fmt.Errorf("%s refuses %+v", w.name, list)
		}
		return v.lookAll()
	}
	if anyWrong && !w.each {
		return fmt.Errorf("%s answers %+v, which is wrong, by %+v", w.name, list, replies)
	}
	for i := range list {
		a, r := &list[i], &replies[i]
		if r.fault != (a.wrong != wrongNothing) {
			return fmt.Errorf("%s answers %+v by %+v", w.name, a, r)
		}
		if r.fault {
			continue
		}
		if err := v.compare(w, a, r, v.expect(a)); err != nil {
			return err
		}
		if a.sequence != 0 {
			v.answered = append(v.answered, remembered{*a, *r, v.house.clock.now})
		}
	}
	if anyWrong {
		return v.lookAll()
	}
	return nil
}

// expect is what the naive limiter answers, and changes.
func (v *visit) expect(a *asking) told {
	k := v.keyOf(a)
	k.touched = true
	switch a.op {
	case opReset:
		before := k.left(v.now())
		v.renew(v.index(a))
		t := told{allowed: true, left: a.meter.most}
		if before < a.meter.most {
			t.before = 1 // DEL says how many keys there were
		}
		return t
	case opLook:
		return decide(k.counter.copy(), a.meter.drains, v.now(), a.asked)
	}
	return decide(k.counter, a.meter.drains, v.now(), a.asked)
}

// compare returns an error if r is not what was to be told about a, or admits too much.
func (v *visit) compare(w *way, a *asking, r *reply, want told) error {
	switch {
	case r.degraded:
		return fmt.Errorf("%s answers %+v degraded", w.name, a)
	case r.knows&knowsAllowed != 0 && r.allowed != want.allowed,
		r.knows&knowsLeft != 0 && r.told.left != want.left,
		r.knows&knowsBefore != 0 && r.before != want.before && !v.full(a, r),
		r.knows&knowsMost != 0 && r.most != a.meter.most:
		return fmt.Errorf("%s answers %s of %s, %s, %+v at %v by %+v, want %+v", w.name,
			[...]string{"a take", "a look", "a reset"}[a.op], a.of, a.meter.name(), a.asked,
			time.Duration(v.now()%minute), r, want)
	}
	if a.op != opTake || a.meter.bound.span == 0 {
		return nil
	}
	units := want.spent
	if a.cost < 0 {
		units = a.cost
	} else if r.knows&knowsAllowed != 0 && r.allowed && !a.report {
		units = a.cost
	}
	if k := v.keyOf(a); !k.admit(v.now(), units) {
		return fmt.Errorf("more than %d of %s in %v, by %s", k.most, a.of,
			time.Duration(k.span), w.name)
	}
	return nil
}

// full reports whether r says of a reset that the key was there, which may have less than a unit
// used: that is not seen in what is left.
func (v *visit) full(a *asking, r *reply) bool { return a.op == opReset && r.before == 1 }

// lookAll looks at all keys that were asked about.
func (v *visit) lookAll() error {
	var list []asking
	for i := range v.keys {
		if v.keys[i].touched {
			m := meters[i/keysOfMeter]
			list = append(list, asking{meter: m, of: v.key(i), op: opLook})
		}
	}
	if len(list) == 0 {
		return nil
	}
	return v.ask(doorWays[3], list, false)
}

// sweep looks at all keys that were asked about by each way.
func (v *visit) sweep() error {
	for i := range v.keys {
		for _, w := range doorWays {
			a := asking{meter: meters[i/keysOfMeter], of: v.key(i)}
			if !v.keys[i].touched || !w.fits(&a) {
				continue
			}
			if err := v.ask(w, []asking{a}, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// again repeats an item under its id: it is answered as before, and charged once.
func (v *visit) again() error {
	b := v.byte()
	if len(v.answered) == 0 {
		return nil
	}
	x := v.answered[len(v.answered)-1-int(b>>1)%len(v.answered)]
	if v.house.clock.now >= x.at.Add(repeatWithin) {
		return nil
	}
	w := doorWays[3+b&1]
	v.log("repeat of %+v", x.asking)
	replies, err := v.send(w, []asking{x.asking}, false)
	if err != nil {
		return err
	}
	if len(replies) != 1 || replies[0] != x.reply {
		return fmt.Errorf("%s answers a repeat by %+v, before by %+v", w.name, replies, x.reply)
	}
	return v.lookAll()
}

// faulty asks with an item that is wrong, among others if the way has lists.
func (v *visit) faulty() error {
	b := v.byte()
	a := v.item(opTake)
	a.wrong = wrong(1 + int(b)%int(wrongs-1))
	a.text = []string{"1.5", "x", "99999999999999999999", "1e999", "+"}[int(b>>3)%5]
	w := v.way(&a)
	if w.name == "Envoy JSON" && a.text == "+" {
		a.text = "-1"
	}
	list := []asking{a}
	if other := v.item(opTake); w.lists && w.fits(&other) {
		list = slices.Insert(list, int(b>>7), other)
	}
	return v.ask(w, list, w.name == "Redis" && b&64 != 0)
}

// together asks for items that are all admitted or none.
func (v *visit) together() error {
	w := doorWays[[]int{1, 3, 4, 7}[v.byte()&3]]
	var list []asking
	for range 2 + int(v.byte())%(mostItems-1) {
		a := v.item(opTake)
		a.drain, a.report, a.cost = false, false, max(0, a.cost)
		if w.fits(&a) && !a.meter.drains {
			list = append(list, a)
		}
	}
	switch {
	case len(list) == 0:
		return nil
	case w.name == "Redis": // MULTI, which undoes nothing
		return v.ask(w, list, true)
	}
	replies, err := v.send(w, list, true)
	if err != nil {
		return err
	}
	tried, all, once := map[int]counter{}, true, map[int]int{}
	for i := range list {
		k := v.index(&list[i])
		if once[k]++; tried[k] == nil {
			tried[k] = v.keys[k].counter.copy()
			v.keys[k].touched = true
		}
		t := decide(tried[k], false, v.now(), list[i].asked)
		all = all && t.allowed
	}
	said := len(replies) == len(list)
	for i := range replies {
		said = said && replies[i].allowed
	}
	if said != all {
		return fmt.Errorf("%s answers %+v together by %+v, want %v", w.name, list, replies, all)
	}
	for k, c := range tried {
		if all {
			v.keys[k].counter = c
		}
	}
	for i := range list {
		a, r := &list[i], &replies[i]
		k := v.keyOf(a)
		if left := max(0, k.left(v.now())); once[v.index(a)] == 1 && r.told.left != left {
			return fmt.Errorf("%s says that %d are left of %s together, want %d", w.name,
				r.told.left, a.of, left)
		}
		if all && a.meter.bound.span > 0 && !k.admit(v.now(), a.cost) {
			return fmt.Errorf("more than %d of %s", k.most, a.of)
		}
	}
	return v.lookAll()
}

// spoil sends a request with some bytes changed. If the door refuses it, nothing is charged; if
// not, nobody knows what it means, and other keys are taken.
func (v *visit) spoil() error {
	a := v.item(opTake)
	w := v.way(&a)
	kind, at, what := v.byte(), v.byte(), v.byte()
	if v.spoils++; v.spoils > mostSpoils {
		return nil
	}
	b := changed(w.write([]asking{a}, false), kind, at, what)
	replies, err := w.send(v.house, opTake, b)
	v.log("spoiled %s: %q: %+v, %v", w.name, b, replies, err)
	if err != nil {
		return fmt.Errorf("%s answers %q by %w", w.name, b, err)
	}
	v.house.commands.hangUp()
	if slices.ContainsFunc(replies, func(r reply) bool { return !r.fault }) {
		if w.closed && kind%changes == cutOff {
			return fmt.Errorf("%s answers %q, which is cut off, by %+v", w.name, b, replies)
		}
		for i := range v.keys {
			v.retire(i)
		}
		return nil
	}
	v.keyOf(&a).touched = true
	return v.lookAll()
}

// inserted are bytes that mean something to a parser.
var inserted = []string{
	"\"", "{", "}", "[", "\xff", "\x00", "-", "9223372036854775808", "\r\n", "$", "*", "&", "%",
	",", "1e9", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
}

// changes are kinds of changes, of which one takes the end away.
const changes, cutOff = 5, 0

// changed is b with a change at some place.
func changed(b []byte, kind, at, what byte) []byte {
	place := int(at) * len(b) / 256
	switch kind % changes {
	case cutOff:
		return b[:place]
	case 1:
		b[place] ^= 1 << (what & 7)
		return b
	case 2:
		return slices.Insert(b, place, []byte(inserted[int(what)%len(inserted)])...)
	case 3:
		return slices.Delete(b, place, min(len(b), place+1+int(what&7)))
	}
	end := min(len(b), place+1+int(what&31))
	return slices.Concat(b[:end], bytes.Clone(b[place:end]), b[end:])
}

// Promise: whatever clients say through whichever doors, each request is answered, by what a naive
// limiter answers; what is malformed is refused and charges nothing; what is repeated under its id
// is charged once; and all doors say the same of a key.
func FuzzDoorRequests(f *testing.F) {
	rpctest.MinimizeBriefly()
	for _, seed := range doorSeeds() {
		f.Add(seed)
	}
	var h *house
	f.Cleanup(func() {
		if h != nil {
			h.close()
		}
	})
	run := 0
	f.Fuzz(func(t *testing.T, in []byte) {
		if run++; h == nil || run%visitsOfHouse == 0 {
			if h != nil {
				h.close()
			}
			h = newHouse(t)
		}
		err := newVisit(h, run, in).play()
		if err == nil {
			return
		}
		again := newHouse(t)
		defer again.close()
		v := newVisit(again, 1, in)
		v.log = func(format string, a ...any) { t.Logf(format, a...) }
		t.Fatalf("%v\nplayed in a new house: %v", err, v.play())
	})
}

// visitsOfHouse is how many inputs one node is asked.
const visitsOfHouse = 512
