package cluster

// Trace is the place of a request in a trace of its client, by the ids of W3C Trace Context. A node
// carries it along to the nodes that it asks, and never reads it. The zero value is none.
type Trace struct {
	ID   [16]byte // of the trace
	Span [8]byte  // in which the request is made
}
