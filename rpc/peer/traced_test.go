package peer

import (
	"fmt"
	"testing"

	"penstock/cluster"
	peerv1 "penstock/proto/penstock/peer/v1"
)

// spans is a Tracer that says what it was asked for.
type spans []string

func (s *spans) Asks([]cluster.Call) (done func()) { return func() {} }
func (s *spans) Answers(a *cluster.Ask, asker string) (done func()) {
	*s = append(*s, fmt.Sprintf("%x of %s begins", a.Trace.Span, asker))
	return func() { *s = append(*s, "ends") }
}

// Promise: the asks of a trace have spans where the door has a tracer, and no others do.
func TestAsksOfATraceHaveSpans(t *testing.T) {
	f := goodFrame()
	f.Asks = append(f.Asks, &peerv1.Ask{Tag: 3, Hop: 1, LeftNs: 1e9, Items: f.Asks[0].Items})
	f.Asks[1].Trace = make([]byte, traceSize)
	f.Asks[1].Trace[traceSize-1] = 7
	for _, traced := range []bool{false, true} {
		d, got, want := newDoor(t), new(spans), "[]"
		if traced {
			d.trace, want = got, "[0000000000000007 of n2 begins ends]"
		}
		e := &exchange{
			door: d, peer: greeting{node: "n2", boot: 2}, to: make(letterbox, 1),
			frames: frameReader{known: &d.limits},
		}
		if err := e.answer(frameOf(t, f)); err != nil || fmt.Sprint(*got) != want {
			t.Errorf("with a tracer (%t): %v, spans %v, want %s", traced, err, *got, want)
		}
	}
}
