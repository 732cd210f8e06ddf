package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/rpc/wire"
)

// A link carries the frames of a line over a connection of its own, without gRPC. A message is its
// kind (one byte), the size of what follows (four, the highest first), and that. The caller writes
// linkPreface, unless TLS has agreed on linkProtocol, and a greeting; the node that answers writes
// a greeting of its own, or why it refuses; then frames go one way and replies the other. It ends
// when one of the two closes the connection; a door that ends it says first how far it came.
//
// Why not gRPC's stream, which earlier releases use and every peer door serves: HTTP/2 hands each
// message from goroutine to goroutine on both sides, and counts the bytes that it may send. A link
// writes where the frame is made and decides where it is read: docs/performance.md has figures.
type link struct {
	conn net.Conn
	// raw is the connection below TLS. It is what is closed: to close TLS waits for what is being
	// sent. nil: it is conn.
	raw   net.Conn
	in    *bufio.Reader
	most  int     // bytes of a frame from the other end
	large *[]byte // the last message, if it did not fit into in
}

const (
	linkPreface  = "PENSTOCK"
	linkProtocol = "penstock-peer" // of TLS (ALPN)

	linkGreeting linkKind = 'G'
	linkFrame    linkKind = 'F'
	linkEnd      linkKind = 'E'

	// linkBuffer holds what has come and was not read yet.
	linkBuffer = 16 << 10
	// maxWord is the size of a greeting or an end: a reason is a few hundred bytes long.
	maxWord = 16 << 10
	// farewellTimeout is how long a door waits for the other end to take in its last words.
	farewellTimeout = time.Second
)

type linkKind byte

// errNoLink says that the other end does not speak as a link does: it is an earlier release.
var errNoLink = errors.New("it speaks no link")

func newLink(conn net.Conn, most int) *link {
	return &link{conn: conn, in: bufio.NewReaderSize(conn, linkBuffer), most: most}
}

func (k *link) send(frame []byte) error { return k.write(linkFrame, frame) }

// write writes one message, which begins with room for its head.
func (k *link) write(kind linkKind, b []byte) error {
	b[0] = byte(kind)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-headSize))
	_, err := k.conn.Write(b)
	return err
}

func (k *link) receive(use func(frame []byte) error) error {
	for {
		kind, b, err := k.read(k.most)
		if err != nil {
			return err
		}
		switch kind {
		case linkFrame:
			err = use(b)
		case linkEnd:
			err = readEnd(b)
		default:
			err = fmt.Errorf("a message of the kind %q is not known here", rune(kind))
		}
		if err != nil {
			return err
		}
	}
}

// read is the next message, of at most so many bytes. It is good until the next call.
func (k *link) read(most int) (kind linkKind, b []byte, err error) {
	if k.large != nil {
		wire.Buffers.Put(k.large)
		k.large = nil
	}
	head, err := k.in.Peek(headSize)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	kind = linkKind(head[0])
	switch kind {
	case linkGreeting, linkFrame, linkEnd:
	default:
		return 0, nil, errNoLink
	}
	size := binary.BigEndian.Uint32(head[1:])
	k.in.Discard(headSize)
	if size > uint32(most) {
		return 0, nil, fmt.Errorf("a message has %d bytes; at most %d are accepted", size, most)
	}
	if n := int(size); n <= linkBuffer {
		b, err = k.in.Peek(n)
		k.in.Discard(len(b))
	} else {
		b, err = k.readLarge(n)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return kind, b, err
}

// readLarge reads n bytes. Memory is taken for what has come, not for what was announced.
func (k *link) readLarge(n int) ([]byte, error) {
	for done, room := 0, 4*linkBuffer; ; room *= 2 {
		room = min(room, n)
		more := wire.Buffers.Get(room)
		if k.large != nil {
			copy(*more, *k.large)
			wire.Buffers.Put(k.large)
		}
		k.large = more
		if _, err := io.ReadFull(k.in, (*more)[done:]); err != nil {
			return nil, err
		}
		if done = room; done == n {
			return *more, nil
		}
	}
}

// hurry closes the connection after a moment.
func (k *link) hurry() { time.AfterFunc(farewellTimeout, k.hangUp) }

// hangUp closes the connection.
func (k *link) hangUp() {
	if k.raw != nil {
		k.raw.Close()
		return
	}
	k.conn.Close()
}

// Field numbers of End in peer.proto.
const endServed, endCode, endText = 1, 2, 3

// end says how far this node came and why it ends the link. A reason that is no status of gRPC is
// said as UNKNOWN.
func (k *link) end(served uint64, reason error) error {
	s := status.Convert(reason)
	b := wire.AppendUint(roomForHead(nil), endServed, served)
	b = wire.AppendUint(b, endCode, uint64(s.Code()))
	text := s.Message()
	return k.write(linkEnd, wire.AppendString(b, endText, text[:min(len(text), maxWord/2)]))
}

// readEnd is the *endError of the other end.
func readEnd(b []byte) error {
	var served, code uint64
	text := ""
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case endServed:
			served = f.Value
		case endCode:
			code = f.Value
		case endText:
			text = string(f.Bytes)
		}
	}
	if f.Err != nil {
		return fmt.Errorf("an end %w", f.Err)
	}
	reason := status.Error(codes.Code(min(code, uint64(codes.Unauthenticated))), text)
	if reason == nil {
		reason = io.EOF
	}
	return &endError{served, reason}
}

// greeted reads the greeting of the other end, or why it refuses.
func (k *link) greeted() (g greeting, version string, ok bool, err error) {
	kind, b, err := k.read(maxWord)
	switch {
	case err != nil:
	case kind == linkGreeting:
		g, version, ok = parseGreeting(b)
	case kind == linkEnd:
		err = readEnd(b)
	default:
		err = errors.New("a link begins with a greeting")
	}
	return g, version, ok, err
}

// greet says which node this is.
func (k *link) greet(me greeting) error {
	return k.write(linkGreeting, me.appendTo(roomForHead(nil)))
}
