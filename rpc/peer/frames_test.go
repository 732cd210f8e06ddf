package peer

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/cluster"
	"penstock/limiter"
	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/rpc/door"
)

// Promise: a world of the simulator plays what nodes would read from a line: an ask and an answer
// arrive whole, are gone with their frame, and the reason of a refusal arrives as an error.
func TestFramesCarryAsksAndAnswers(t *testing.T) {
	written := func(a *cluster.Ask, left time.Duration) []byte {
		var w frameWriter
		w.add(1, a, int64(left))
		return w.buf
	}
	rapid.Check(t, func(t *rapid.T) {
		var f Frames
		left := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "left"))
		now := limiter.Instant(rapid.Int64Range(0, 1<<60).Draw(t, "now"))
		a := drawAsk(t, []*limiter.Limit{drawLimit(t), drawLimit(t)})
		got, erase, err := f.Ask(a, left, now)
		if err != nil || got.Deadline != now.Add(left) ||
			!bytes.Equal(written(got, left), written(a, left)) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, a)
		}
		if erase(); strings.Trim(got.Items[0].Key, "\x00") != "" {
			t.Fatalf("the key %q is there without its frame", got.Items[0].Key)
		}
		if _, _, err := f.Ask(&cluster.Ask{}, left, now); err == nil {
			t.Fatal("an ask of nothing is not refused")
		}

		answer := drawAnswer(t)
		n := len(answer.Items)
		back, err := f.Answer(answer, n)
		if err != nil || !bytes.Equal(appendAnswer(nil, 1, back), appendAnswer(nil, 1, answer)) {
			t.Fatalf("got %+v, %v\nwant %+v", back, err, answer)
		}
		if n > 0 {
			if _, err := f.Answer(answer, n-1); err == nil {
				t.Fatalf("%d outcomes answer %d items", n, n-1)
			}
		}
	})
}

// Promise: neither end keeps what lies in an earlier frame, or its limits, until a frame of that
// size comes again.
func TestNothingIsKeptOfAnEarlierFrame(t *testing.T) {
	many := goodFrame()
	many.Limits = slices.Repeat(many.Limits, 9)
	many.Asks[0].Items = slices.Repeat(many.Asks[0].Items, 9)
	r := &frameReader{known: new(door.LimitCache)}
	for _, f := range []*peerv1.Frame{many, {Asks: many.Asks[1:]}} {
		if _, err := readFrame(r, frameOf(t, f), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, it := range r.ask.Items[len(r.ask.Items):cap(r.ask.Items)] {
		if it != (cluster.AskItem{}) {
			t.Fatalf("the reader keeps the item %+v", it)
		}
	}
	for _, l := range r.limits[len(r.limits):cap(r.limits)] {
		if l != (frameLimit{}) {
			t.Fatalf("the reader keeps the limit %+v", l)
		}
	}
	var w frameWriter
	w.bring(limiterOf(t))
	if w.reset(); len(w.index) > 0 || w.limits[:1][0] != nil {
		t.Errorf("the writer keeps the limits %v", w.limits[:1])
	}
}

func limiterOf(t *testing.T) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(tenThousand)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
