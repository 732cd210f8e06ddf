package peer

import (
	"penstock/cluster"
	"penstock/rpc/wire"
)

// traceSize is how many bytes a trace has in an ask.
const traceSize = len(cluster.Trace{}.ID) + len(cluster.Trace{}.Span)

func appendTrace(b []byte, t cluster.Trace) []byte {
	if t == (cluster.Trace{}) {
		return b
	}
	b = wire.AppendHead(b, askTrace, traceSize)
	return append(append(b, t.ID[:]...), t.Span[:]...)
}

// readTrace reads a trace. One of another length is left out: checks do without.
func readTrace(b []byte) (t cluster.Trace) {
	if len(b) != traceSize {
		return t
	}
	copy(t.ID[:], b)
	copy(t.Span[:], b[len(t.ID):])
	return t
}
