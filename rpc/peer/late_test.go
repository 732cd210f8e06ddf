package peer

import (
	"io"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/rpc/rpctest"
)

// letterbox is a carrier that keeps what is sent.
type letterbox chan []byte

func (l letterbox) send(frame []byte) error          { l <- slices.Clone(frame); return nil }
func (l letterbox) receive(func([]byte) error) error { return io.EOF }
func (l letterbox) hurry()                           {}

// Promise: an ask that may wait is answered in a frame of its own, and counted until then. Beyond
// the bounds of its stream or of all streams a relay is answered at once, by this node alone, and
// others are refused.
func TestAsksThatWait(t *testing.T) {
	const (
		sync          = 1 << 7 // a flag of limits
		relays, syncs = relaysAtOnce, lateAtOnce
		bytes         = lateBytes
	)
	known, strange := greeting{node: "n2", boot: 2}, greeting{node: "n3", boot: 3}
	full := func(number, bytes int) [2]int { return [2]int{number, bytes} }
	for name, row := range map[string]struct {
		peer    greeting
		relay   bool
		flags   uint32
		here    [2]int // asks that wait already in this stream, and their bytes
		in      [2]int // and in all
		late    bool
		refused bool
	}{
		"plain":                 {peer: known},
		"relay":                 {peer: known, relay: true, late: true},
		"relay of another boot": {peer: greeting{node: "n2", boot: 3}, relay: true},
		"relay of a stranger":   {peer: strange, relay: true},
		"last relay":            {peer: known, relay: true, here: full(relays-1, 0), late: true},
		"relay too many":        {peer: known, relay: true, here: full(relays, 0)},
		"relay too large":       {peer: known, relay: true, here: full(0, relayBytes)},
		"last relay of all":     {peer: known, relay: true, in: full(4*relays-1, 0), late: true},
		"relay too many of all": {peer: known, relay: true, in: full(4*relays, 0)},
		"too large for all":     {peer: known, relay: true, in: full(0, 4*relayBytes)},
		"sync":                  {peer: strange, flags: sync, late: true},
		"last sync":             {peer: known, flags: sync, here: full(syncs-1, 0), late: true},
		"sync too many":         {peer: known, flags: sync, here: full(syncs, 0), refused: true},
		"sync too large":        {peer: known, flags: sync, here: full(0, bytes), refused: true},
		"sync too many of all":  {peer: known, flags: sync, in: full(4*syncs, 0), refused: true},
		"relay of sync, too many": {
			peer: known, relay: true, flags: sync, here: full(syncs, 0), refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, box := newDoor(t), make(letterbox, 2)
			e := &exchange{
				door: d, peer: row.peer, to: box, frames: frameReader{known: &d.limits},
			}
			e.late.add(row.here[0], row.here[1])
			d.late.add(row.in[0], row.in[1])
			f := goodFrame()
			f.Limits[0].Flags, f.Asks[0].Relay = row.flags, row.relay
			f.Asks = append(f.Asks[:1:1], &peerv1.Ask{Tag: 2}) // which is refused
			if err := e.answer(frameOf(t, f)); err != nil {
				t.Fatal(err)
			}
			replies := map[uint64]*peerv1.Answer{}
			frames := 1
			if row.late {
				frames++
			}
			for range frames {
				var r peerv1.Reply
				if err := proto.Unmarshal((<-box)[headSize:], &r); err != nil {
					t.Fatal(err)
				}
				if late := len(r.Answers) == 1; late != row.late {
					t.Fatalf("%d answers in one frame", len(r.Answers))
				}
				for _, a := range r.Answers {
					replies[a.Tag] = a
				}
			}
			a := replies[1]
			if a.Error == errTooMuchWaits != row.refused || !row.refused && len(a.Outcomes) != 1 ||
				replies[2].Error == "" || e.served != 2 {
				t.Errorf("answered with %v and served up to %d", replies, e.served)
			}
			rpctest.Eventually(t, "nothing waits any more", func() bool {
				return e.late.number.Load() == int64(row.here[0]) &&
					e.late.bytes.Load() == int64(row.here[1]) &&
					d.late.number.Load() == int64(row.in[0]) &&
					d.late.bytes.Load() == int64(row.in[1])
			})
		})
	}
}

// Promise: a frame is answered in one frame, in none if all of it waits, and not at all once its
// stream has ended.
func TestFramesAreAnsweredOnce(t *testing.T) {
	d, box := newDoor(t), make(letterbox, 3)
	e := &exchange{
		door: d, peer: greeting{node: "n2", boot: 2}, to: box,
		frames: frameReader{known: &d.limits},
	}
	f := goodFrame()
	f.Asks = f.Asks[:1]
	f.Asks[0].Relay = true
	if err := e.answer(frameOf(t, f)); err != nil {
		t.Fatal(err)
	}
	<-box
	rpctest.Eventually(t, "nothing waits", func() bool { return d.late.number.Load() == 0 })
	e.ended = true
	if err := e.answer(frameOf(t, f)); err != io.EOF || len(box) > 0 {
		t.Errorf("after its end a stream answers with %v and %d frames", err, len(box))
	}
}

// Promise: what an ask gives back is answered when the nodes that remember a denial of its key were
// told, and is counted until then.
func TestGivingBackIsAnsweredWhenTold(t *testing.T) {
	d, box := newDoor(t), make(letterbox, 1)
	e := &exchange{
		door: d, peer: greeting{node: "n2", boot: 2}, to: box,
		frames: frameReader{known: &d.limits},
	}
	ask := func(tag uint64, cost int64, from uint64) *peerv1.Answer {
		f := goodFrame()
		f.Asks = f.Asks[:1]
		f.Asks[0].Tag, f.Asks[0].From = tag, from
		f.Asks[0].Items[0].Cost, f.Asks[0].Items[0].Tell = cost, from != 0
		if err := e.answer(frameOf(t, f)); err != nil {
			t.Fatal(err)
		}
		var r peerv1.Reply
		if err := proto.Unmarshal((<-box)[headSize:], &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Answers) != 1 || r.Answers[0].Tag != tag || len(r.Answers[0].Outcomes) != 1 {
			t.Fatalf("ask %d is answered with %v", tag, &r)
		}
		return r.Answers[0]
	}
	ask(1, 5, 0)
	if o := ask(2, 1, 2).Outcomes[0]; o.Allowed || !o.Told {
		t.Fatalf("%v is no denial that the asker will be told the end of", o)
	}
	if o := ask(3, -2, 0).Outcomes[0]; o.Remaining != 2 {
		t.Errorf("giving 2 back is answered with %v", o)
	}
	rpctest.Eventually(t, "nothing waits", func() bool {
		return e.late.number.Load() == 0 && d.late.bytes.Load() == 0
	})
}

// Promise: an answer that waits stays what it is, whatever the asks after it in its frame are
// answered.
func TestAnswersThatWaitStay(t *testing.T) {
	for range 20 {
		d, box := newDoor(t), make(letterbox, 2)
		e := &exchange{
			door: d, peer: greeting{node: "n2", boot: 2}, to: box,
			frames: frameReader{known: &d.limits},
		}
		f := goodFrame()
		item := func(tag uint64, key string, cost int64) *peerv1.Ask {
			return &peerv1.Ask{Tag: tag, Hop: 1, LeftNs: 1e9, Items: []*peerv1.Item{
				{Key: []byte(key), Cost: cost},
			}}
		}
		watches := item(2, "a", 1)
		watches.From, watches.Items[0].Tell = 2, true
		f.Asks = []*peerv1.Ask{item(1, "a", 5), watches, item(3, "a", -2), item(4, "b", 5)}
		if err := e.answer(frameOf(t, f)); err != nil {
			t.Fatal(err)
		}
		remaining := map[uint64]int64{}
		for len(remaining) < 4 {
			var r peerv1.Reply
			if err := proto.Unmarshal((<-box)[headSize:], &r); err != nil {
				t.Fatal(err)
			}
			for _, a := range r.Answers {
				remaining[a.Tag] = a.Outcomes[0].Remaining
			}
		}
		if want := (map[uint64]int64{1: 0, 2: 0, 3: 2, 4: 0}); !maps.Equal(remaining, want) {
			t.Fatalf("remaining by tag: %v, want %v", remaining, want)
		}
	}
}
