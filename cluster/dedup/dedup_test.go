package dedup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: request ids are remembered for 2 s, in bounded memory.
func TestWindowForgetsAfterItsWindow(t *testing.T) {
	var r Window
	taken := 0
	once := func(now limiter.Instant, seq uint64) limiter.Decision {
		var out [1]limiter.Decision
		r.Once(now, Take{ID: ID{Origin: 1, Sequence: seq}}, out[:],
			func() bool { taken++; out[0].Remaining = int64(taken); return true })
		return out[0]
	}
	const many = 5000
	start := limiter.Instant(time.Hour) // an empty window has no oldest answer, not one of long ago
	for seq := range uint64(many) {
		once(start.Add(0), seq)
	}
	for seq := range uint64(many) {
		if d := once(start.Add(Lasts-1), seq); d.Remaining != int64(seq)+1 {
			t.Fatalf("take %d is answered with %d, the answer of another", seq, d.Remaining)
		}
	}
	if taken != many {
		t.Fatalf("%d takes for %d ids delivered twice", taken, many)
	}
	once(start.Add(Lasts), 0)
	if taken != many+1 {
		t.Errorf("an id is still known after its window")
	}
}

// Promise: whatever ids are drawn, in a row or with gaps that let their places meet, each is
// answered as the last time, alone or with others, or as new; also when positions no longer fit
// into 32 bits.
func TestWindowKnowsAllIDs(t *testing.T) {
	for _, first := range []int{0, 1<<32 - 1000} {
		t.Run(fmt.Sprint(first), func(t *testing.T) { testWindowKnowsAllIDs(t, first) })
	}
}

func testWindowKnowsAllIDs(t *testing.T, first int) {
	type known struct {
		at      limiter.Instant
		answers []limiter.Decision
	}
	var r Window
	for i := range r.shards {
		r.shards[i].head, r.shards[i].tail = first, first
	}
	draw := rand.New(rand.NewPCG(1, 2))
	want, repeats := map[ID]known{}, 0
	now := limiter.Instant(0)
	for i := range int64(100_000) {
		now = now.Add(time.Duration(draw.IntN(int(100 * time.Microsecond))))
		id := ID{
			Origin:   draw.Uint64N(3),
			Sequence: draw.Uint64N(5_000) * []uint64{1, 16, 1024, 1 << 20}[draw.IntN(4)],
		}
		out := make([]limiter.Decision, 1+id.Sequence%4/3)
		taken := false
		take := func() bool {
			taken = true
			out[0] = limiter.Decision{
				Allowed:    i%2 == 0,
				Limit:      i + 1,
				Remaining:  i,
				RetryAfter: time.Duration(i + 2),
				ResetAfter: time.Duration(i + 3),
			}
			if i%7 == 0 { // it has more to say than most
				out[0].Delay, out[0].Drained, out[0].Restarted = time.Duration(i+4), i, true
			}
			return true
		}
		var again bool
		if len(out) == 1 && i%3 > 0 {
			again = r.OnceAlone(now, Take{ID: id, Partition: 0}, &out[0], take)
		} else {
			again = r.Once(now, Take{ID: id}, out, take)
		}
		before, found := want[id]
		found = found && before.at.Add(Lasts) > now
		switch {
		case again == taken || again != found:
			t.Fatalf("%v: known: %v, taken: %v, want known: %v", id, again, taken, found)
		case again && !slices.Equal(out, before.answers):
			t.Fatalf("%v is answered with %+v, before with %+v", id, out, before.answers)
		case again:
			repeats++
		default:
			want[id] = known{now, out}
		}
	}
	for i := range r.shards {
		if s := &r.shards[i]; s.tail < first+2000 {
			t.Errorf("shard %d was given %d records only", i, s.tail-first)
		}
	}
	if repeats < 10_000 || repeats > 90_000 {
		t.Fatalf("%d of 100000 were repeats: that proves little", repeats)
	}
}

func TestWindowIsBounded(t *testing.T) {
	var r Window
	nothing := func() bool { return true }
	out := make([]limiter.Decision, 1)
	for seq := range uint64(shards*most + 100_000) {
		r.Once(0, Take{ID: ID{Origin: 1, Sequence: seq}}, out, nothing)
	}
	for i := range r.shards {
		if s := &r.shards[i]; len(s.queue) > most || s.tail-s.head > most || len(s.latest) > most {
			t.Errorf(
				"shard %d holds %d of %d records, %d places; bound is %d",
				i,
				s.tail-s.head,
				len(s.queue),
				len(s.latest),
				most,
			)
		}
	}
}

// Promise: a take that is repeated is charged once. A node that has answered the items of a request
// from its share, one by one, and then gets their keys with the answer of the holder to all of
// them, answers a repeat as the holder did, and a repeat of one item as its share.
func TestWindowTellsTogetherFromOneByOne(t *testing.T) {
	var r Window
	id := ID{Origin: 1, Sequence: 7}
	fill := func(out []limiter.Decision) func() bool {
		return func() bool {
			for i := range out {
				out[i].Remaining = 1
			}
			return true
		}
	}
	alone, both := make([]limiter.Decision, 1), make([]limiter.Decision, 2)
	r.Once(0, Take{ID: id}, alone, fill(alone))
	r.Learn(1, []Memory{{ID: id, Decisions: []limiter.Decision{{Remaining: 2}, {Remaining: 2}}}})
	again := r.Once(2, Take{ID: id}, both, fill(both))
	if !again || both[0].Remaining != 2 || both[1].Remaining != 2 {
		t.Errorf("both together are answered with %d and %d", both[0].Remaining, both[1].Remaining)
	}
	if !r.Once(2, Take{ID: id}, alone, fill(alone)) || alone[0].Remaining != 1 {
		t.Errorf("one alone is answered with %d", alone[0].Remaining)
	}
}

// Promise: an answer that is learned twice, because a message is repeated, is one memory, and is
// told to others for as long as it is remembered.
func TestWindowLearnsOnce(t *testing.T) {
	var r Window
	m := Memory{ID: ID{Origin: 1, Sequence: 7}, Decisions: []limiter.Decision{{Remaining: 2}}}
	r.Learn(1, []Memory{m})
	r.Learn(2, []Memory{m})
	told := func(now limiter.Instant) (n int) {
		r.Each(now, func(uint16) bool { return true }, func(Memory) { n++ })
		return n
	}
	if n := told(1 + limiter.Instant(Lasts)); n != 1 {
		t.Errorf("%d memories of one answer", n)
	}
	if n := told(2 + limiter.Instant(Lasts)); n != 0 {
		t.Errorf("%d memories of an answer that is forgotten", n)
	}
}

// Promise: a take that was charged anew while a node had lost its partition is not charged again by
// that node, which has heard of it with the partition. It says what it has said before.
func TestWindowLastsAsTheLaterAnswer(t *testing.T) {
	var r Window
	id := ID{Origin: 1, Sequence: 7}
	out := make([]limiter.Decision, 1)
	take := func() bool { out[0].Remaining = 9; return true }
	learn := func(now limiter.Instant, age time.Duration) {
		r.Learn(now, []Memory{{ID: id, Age: age, Decisions: []limiter.Decision{{Remaining: 8}}}})
	}
	r.Once(0, Take{ID: id}, out, take)
	learn(limiter.Instant(Lasts/4), Lasts/2) // of an answer before
	learn(limiter.Instant(Lasts/2), Lasts/4)
	for _, now := range []limiter.Instant{limiter.Instant(Lasts), limiter.Instant(Lasts*3/2) - 1} {
		if !r.Once(now, Take{ID: id}, out, take) || out[0].Remaining != 9 {
			t.Errorf("at %d the take is answered with %d left, or charged", now, out[0].Remaining)
		}
	}
	if r.Once(limiter.Instant(Lasts*3/2), Take{ID: id}, out, take) {
		t.Error("the take is remembered for too long")
	}
}

// Promise: what a share of a limit said is known as that, and only where it was said.
func TestWindowKnowsShares(t *testing.T) {
	var r Window
	share := Take{ID: ID{Origin: 1, Sequence: 1}, Partition: 3}
	owner := Take{ID: ID{Origin: 1, Sequence: 2}, Partition: 3}
	for _, t := range []Take{share, owner} {
		var out limiter.Decision
		r.OnceAlone(0, t, &out, func() bool { return true })
	}
	r.Share(0, share)
	r.Share(0, Take{ID: ID{Origin: 9}}) // which nobody has asked for
	if !r.Shared(1, share) || r.Shared(1, owner) || r.Shared(limiter.Instant(Lasts), share) {
		t.Error("it is not known which answers are those of a share")
	}
	told := 0
	r.Each(1, func(uint16) bool { return true }, func(m Memory) {
		if told++; m.ID != owner.ID {
			t.Errorf("%v is told to others", m.ID)
		}
	})
	if told != 1 {
		t.Errorf("%d answers are told to others; want that of the owner", told)
	}
}

// Promise: a take that a share has admitted is charged unless an owner has decided on it, here or
// elsewhere, and its client hears again what it has heard.
func TestWindowChargesWhatAShareAdmitted(t *testing.T) {
	for _, row := range []struct {
		name    string
		share   bool  // this node's share has answered
		owner   []int // what remains after each answer of an owner: here, or learned if negative
		charges bool
		says    int64 // what a repeat of the take hears to remain
	}{
		{"nobody has decided", false, nil, true, 50},
		{"its own share has", true, nil, true, 7},
		{"it has decided as the owner", false, []int{40}, false, 40},
		{"another owner has told it", false, []int{-41}, false, 41},
		{"its own share, then an owner that has told it", true, []int{-41}, false, 41},
		{"two owners that have told it", true, []int{-41, -42}, false, 41},
	} {
		var w Window
		id := ID{Origin: 1, Sequence: 1}
		answers := func(remaining int64) func(*limiter.Decision) func() bool {
			return func(out *limiter.Decision) func() bool {
				return func() bool {
					*out = limiter.Decision{Allowed: true, Remaining: remaining}
					return true
				}
			}
		}
		var out limiter.Decision
		if row.share {
			w.OnceAlone(0, Take{ID: id, Partition: 3}, &out, answers(7)(&out))
			w.Share(0, Take{ID: id})
		}
		for _, left := range row.owner {
			if left > 0 {
				w.OnceAlone(0, Take{ID: id, Partition: 3}, &out, answers(int64(left))(&out))
				continue
			}
			w.Learn(0, []Memory{{ID: id, Partition: 3, Decisions: []limiter.Decision{{
				Allowed: true, Remaining: int64(-left),
			}}}})
		}
		repeated := w.OnceAlone(1, Take{ID: id, Partition: 3, Owed: true}, &out, answers(50)(&out))
		if repeated == row.charges {
			t.Errorf("%s: it is charged: %t", row.name, !repeated)
		}
		w.OnceAlone(1, Take{ID: id, Partition: 3}, &out, answers(-1)(&out))
		if out.Remaining != row.says {
			t.Errorf("%s: a repeat hears that %d remain; want %d", row.name, out.Remaining,
				row.says)
		}
	}
}

// Promise: memory follows what is remembered: answers that are forgotten leave nothing behind, and
// their room is used again before more is taken. A memory that is told says how old it is.
func TestForgottenAnswersLeaveNothingBehind(t *testing.T) {
	var r Window
	const start = limiter.Instant(time.Hour)
	two := make([]limiter.Decision, 2)
	once := func(now limiter.Instant, sequence uint64) {
		r.Once(now, Take{ID: ID{Origin: 1, Sequence: sequence}}, two, func() bool { return true })
	}
	s, _ := r.shard(ID{Origin: 1})
	once(start, 0)
	for sequence := uint64(1); s.tail < len(s.queue); sequence++ {
		once(start, sequence)
	}
	room := len(s.queue)
	r.Each(start.Add(Lasts-1), func(uint16) bool { return true }, func(m Memory) {
		if m.Age != Lasts-1 {
			t.Errorf("%v is told as %v old", m.ID, m.Age)
		}
	})
	once(start.Add(Lasts), 0) // a repeat that comes too late
	if len(s.queue) != room || len(s.many) != 1 || s.tail-s.head != 1 {
		t.Errorf("there is room for %d answers, before for %d; %d are remembered, of %d requests",
			len(s.queue), room, s.tail-s.head, len(s.many))
	}
}
