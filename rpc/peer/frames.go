package peer

import (
	"cmp"
	"fmt"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/door"
)

// Frames carries the messages of nodes as the bytes of frames, without a line in between: so a
// simulator, which has a network of its own, plays what is written to the wire and read from it.
type Frames struct {
	known door.LimitCache
}

// Ask is a as its peer reads it when its clock shows now. left is what remains of its deadline.
// Keys lie in the frame until erase overwrites it.
func (f *Frames) Ask(
	a *cluster.Ask, left time.Duration, now limiter.Instant,
) (got *cluster.Ask, erase func(), err error) {
	var w frameWriter
	w.add(1, a, int64(left))
	r := frameReader{known: &f.known}
	refused := fmt.Errorf("the frame of %d bytes has no ask", len(w.buf))
	err = r.read(w.buf, now, func(_ uint64, ask *cluster.Ask, reason error) {
		got, refused = ask, reason
	})
	return got, func() { clear(w.buf) }, cmp.Or(err, refused)
}

// Answer is a as the node reads it that has asked for items items.
func (f *Frames) Answer(a *cluster.Answer, items int) (got *cluster.Answer, err error) {
	broken := eachAnswer(appendAnswer(nil, 1, a), func(_ uint64, b []byte) {
		got, _, err = readAnswer(b, items, new(lineageMemo))
	})
	return got, cmp.Or(err, broken)
}
