package native

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"penstock/cluster"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/wire"
)

const (
	// maxInFlight is how many requests of one stream are decided at once; further ones are not
	// read.
	maxInFlight = 256
	// maxIdle is how many goroutines of one stream wait for its next requests. One that is made for
	// a request has its stack copied as it grows, a tenth of the time that the request takes.
	maxIdle = 16
	// maxTimeout bounds timeout_ms.
	maxTimeout = time.Hour
)

// checkStream serves one CheckStream until the client or the door ends it.
func checkStream(server any, stream grpc.ServerStream) error {
	s := server.(*rateLimiter)
	t := &talk{
		door: s, stream: stream, calls: make(chan *streamCall),
		slots: make(chan struct{}, maxInFlight),
		from:  door.Caller{Context: stream.Context()},
	}
	t.client = t.from.Name()
	t.work = fair.Work{Cost: streamCost, Line: t.from.Line(), Shared: true}
	over := make(chan error, 1)
	go func() { over <- t.read() }()
	var err error
	select {
	case err = <-over:
	case <-s.ending:
		err = status.Error(codes.Unavailable, "this node is stopping")
	}
	for range cap(t.slots) {
		t.slots <- struct{}{} // waits for the requests under way, and keeps new ones from starting
	}
	close(t.calls)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// talk is one CheckStream at work. It decides requests as they come, several at once: some wait for
// other nodes.
type talk struct {
	door    *rateLimiter
	stream  grpc.ServerStream
	calls   chan *streamCall // to an idle one
	idle    atomic.Int32
	slots   chan struct{} // has one of each call under way
	sending sync.Mutex    // a stream takes one answer at a time

	from   door.Caller
	client string    // its name
	work   fair.Work // that a request is
}

func (t *talk) read() error {
	for {
		t.work.Line.Hold() // also what gRPC has read already
		c := streamCalls.Get().(*streamCall)
		if err := t.stream.RecvMsg(c); err != nil {
			return err
		}
		select {
		case t.slots <- struct{}{}:
			c.from = t.from
		case <-t.stream.Context().Done():
			return t.stream.Context().Err()
		}
		c.refused = t.door.gate.Enter(t.client, t.work)
		select {
		case t.calls <- c:
		default:
			go t.answer(c)
		}
	}
}

// answer answers c, and then others, unless enough wait for them already.
func (t *talk) answer(c *streamCall) {
	for c != nil {
		if t.door.answer(c); c.refused == nil {
			t.door.gate.Leave(t.client)
		}
		t.sending.Lock()
		_ = t.stream.SendMsg(c) // an error means that the client is gone; RecvMsg says so too
		t.sending.Unlock()
		<-t.slots
		if t.idle.Add(1) > maxIdle {
			t.idle.Add(-1)
			return
		}
		c = <-t.calls // nil at the end of the stream
		t.idle.Add(-1)
	}
}

// answer decides one request of a stream.
func (s *rateLimiter) answer(c *streamCall) {
	timeout := cluster.DefaultDeadline
	if c.timeoutMs != 0 {
		timeout = time.Duration(min(max(c.timeoutMs, 0),
			maxTimeout.Milliseconds())) * time.Millisecond
	}
	began := time.Now()
	err := c.refused
	if err == nil {
		err = s.check(s.clock.At(began).Add(timeout), &c.checkCall)
	}
	if door.Took(s.seconds, began); err != nil {
		s.refused.note(c.from.Context, penstockv1.RateLimiter_CheckStream_FullMethodName, err)
		f := door.Explain(err)
		c.failure = &penstockv1.StreamError{Code: int32(f.Code), Message: f.Text}
	}
}

// streamCall is one request of a stream, used again and again.
type streamCall struct {
	checkCall
	tag       uint64
	timeoutMs int64
	refused   error                   // by the gate
	failure   *penstockv1.StreamError // nil: it was decided
}

var streamCalls = sync.Pool{New: func() any { return new(streamCall) }}

// Read reads a message with a check of items and nothing else. It keeps nothing of b.
func (c *streamCall) Read(b []byte) bool {
	c.bytes = append(c.bytes[:0], b...)
	c.tag, c.timeoutMs = 0, 0
	f, asked := wire.Fields{Rest: c.bytes}, false
	for f.Next() {
		switch {
		case f.Wire == protowire.VarintType && f.Num == 1:
			c.tag = f.Value
		// or there are two halves of one
		case f.Wire == protowire.BytesType && f.Num == 2 && !asked:
			if asked = c.readItems(f.Bytes); !asked {
				return false
			}
		case f.Wire == protowire.VarintType && f.Num == 3:
			c.timeoutMs = int64(f.Value)
		default:
			return false
		}
	}
	return f.Err == nil && asked
}

// ReadByLibrary reads any message.
func (c *streamCall) ReadByLibrary(b []byte) error {
	var in penstockv1.CheckStreamRequest
	if err := proto.Unmarshal(b, &in); err != nil {
		return err
	}
	c.tag, c.timeoutMs, c.in = in.Tag, in.TimeoutMs, in.Check
	if c.in == nil {
		c.in = new(penstockv1.CheckRequest)
	}
	return nil
}

// Written is the answer. It is the last that is asked of c, which others use from here on.
func (c *streamCall) Written(codec wire.Codec) (mem.BufferSlice, error) {
	b, err := c.write(codec)
	c.clear()
	c.failure = nil
	streamCalls.Put(c)
	return b, err
}

func (c *streamCall) write(codec wire.Codec) (mem.BufferSlice, error) {
	if c.failure != nil {
		return codec.CodecV2.Marshal(&penstockv1.CheckStreamResponse{Tag: c.tag, Error: c.failure})
	}
	var w checkWriter
	w.Begin(96 * (1 + len(c.out)))
	w.Number(1, int64(c.tag))
	at := w.Open(2)
	w.check(&c.checkCall)
	w.Close(at)
	if w.Unforeseen {
		w.Free()
		return codec.CodecV2.Marshal(&penstockv1.CheckStreamResponse{
			Tag:   c.tag,
			Check: c.response(),
		})
	}
	return w.Slice(), nil
}
