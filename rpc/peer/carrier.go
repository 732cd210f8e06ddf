package peer

import (
	"strconv"

	"google.golang.org/grpc"

	"penstock/rpc/wire"
)

// carrier carries frames to the other end, and hands over those that come from there: a link, or a
// stream of gRPC.
type carrier interface {
	// send sends a frame, which begins with room for a head. If it fails, the other end has not got
	// the frame whole and reads none of it.
	send(frame []byte) error
	// receive hands over each frame that comes, until the carrier ends or use fails, and says why.
	// The frame is good until use returns. An error of a peer's that says how far it came is an
	// *endError.
	receive(use func(frame []byte) error) error
	// hurry ends a send that the other end keeps waiting: the door closes.
	hurry()
}

// headSize is the room for the head of a message of a link, before each frame.
const headSize = 5

// roomForHead appends it.
func roomForHead(b []byte) []byte { return append(b, make([]byte, headSize)...) }

// endError says why a peer has ended a stream, and how far it came: it has not touched what has a
// greater tag than served.
type endError struct {
	served uint64
	reason error
}

func (e *endError) Error() string { return e.reason.Error() }
func (e *endError) Unwrap() error { return e.reason }

// grpcCarrier is a stream of gRPC, at either of its ends.
type grpcCarrier struct{ messages }

// messages is what both ends of a stream of gRPC can do.
type messages interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

func (c grpcCarrier) send(frame []byte) error {
	frame = frame[headSize:]
	return c.SendMsg(&frame)
}

func (c grpcCarrier) receive(use func(frame []byte) error) error {
	for {
		var m wire.Message
		if err := c.RecvMsg(&m); err != nil {
			return c.ended(err)
		}
		err := use(m.Bytes())
		m.Free()
		if err != nil {
			return err
		}
	}
}

// ended is err with what the trailer of a peer says besides.
func (c grpcCarrier) ended(err error) error {
	if called, ok := c.messages.(grpc.ClientStream); ok {
		served, unknown := strconv.ParseUint(first(called.Trailer(), servedKey), 10, 64)
		if unknown == nil {
			return &endError{served, err}
		}
	}
	return err
}

// hurry is left to gRPC, which closes the connection.
func (grpcCarrier) hurry() {}
