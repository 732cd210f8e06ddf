package gossip

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
)

const (
	// roomForStreams is how many bytes all streams may take together. A node sends some 700 bytes
	// for each node that it knows, and the library needs a few times as much to read them. An
	// address that is alone has half of it, enough for 6,000 nodes.
	roomForStreams = 8 << 20
	// streamCost is what a stream takes of it before a byte has come.
	streamCost = 32 << 10
	// nodeCost is what the library takes for each node that a stream announces.
	nodeCost = 128
)

var (
	errNoRoom = errors.New("gossip: streams take too much memory together; this one is closed")
	errPacked = errors.New(
		"gossip: a message that no node sends, packed or of a user; the stream is closed")
)

// room is what streams have taken of roomForStreams. An address may have as much as is left, so
// that others find room; a flood from one keeps no member out.
type room struct {
	mu   sync.Mutex // guards what follows
	left int64
	by   map[string]int64
}

func newRoom() *room { return &room{left: roomForStreams, by: map[string]int64{}} }

// take reports whether there was room for n more bytes of the address from.
func (r *room) take(from string, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.left || r.by[from] > r.left-n-n {
		return false
	}
	r.left -= n
	r.by[from] += n
	return true
}

func (r *room) give(from string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += n
	if r.by[from] -= n; r.by[from] == 0 {
		delete(r.by, from)
	}
}

// free is how much is left.
func (r *room) free() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// stream is a connection of the library, which alone reads it. Its first message is looked at
// before the library makes room for it.
type stream struct {
	net.Conn
	door   *door
	from   string
	in     *bufio.Reader
	looked bool
	wrong  error // why it is not read further

	mu     sync.Mutex // guards what follows
	taken  int64
	closed bool
}

// longestHead is how much of a stream is looked at: a label, and the head of a state.
const longestHead = 2 + 255 + 1 + 64

// streamOver makes a stream of c, or closes it where there is no room.
func (d *door) streamOver(c net.Conn) (net.Conn, bool) {
	s := &stream{Conn: c, door: d, from: network(c.RemoteAddr().String())}
	if s.take(streamCost) != nil {
		c.Close()
		return nil, false
	}
	s.in = bufio.NewReaderSize(c, longestHead)
	return s, true
}

// network is the address of a host:port; of IPv6, its /64.
func network(hostPort string) string {
	at, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return hostPort
	}
	ip := at.Addr().Unmap().WithZone("")
	if p, err := ip.Prefix(64); err == nil && ip.Is6() {
		return p.String()
	}
	return ip.String()
}

// Read reads what the room has room for.
func (s *stream) Read(b []byte) (n int, err error) {
	if !s.looked && s.wrong == nil {
		s.wrong = s.look()
		s.looked = true
	}
	if s.wrong != nil {
		return 0, s.wrong
	}
	if n, err = s.in.Read(b); n > 0 {
		if s.wrong = s.take(int64(n)); s.wrong != nil {
			return 0, s.wrong
		}
	}
	return n, err
}

// take charges the stream with n bytes.
func (s *stream) take(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if !s.door.room.take(s.from, n) {
		s.door.refused.Room.Add(1)
		return errNoRoom
	}
	s.taken += n
	return nil
}

// Close gives back what the stream has taken.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.door.room.give(s.from, s.taken)
	}
	return s.Conn.Close()
}

// Kinds of messages of the library.
const (
	stateKind  = 6
	manyKind   = 7
	userKind   = 8
	packedKind = 9
	summedKind = 12
	labelKind  = 244
)

// look charges the stream with what its first message announces.
func (s *stream) look() error {
	head, err := s.in.Peek(1)
	at := 0
	if err == nil && head[0] == labelKind {
		if head, err = s.in.Peek(2); err == nil {
			at = 2 + int(head[1])
			head, err = s.in.Peek(at + 1)
		}
	}
	switch {
	case err != nil:
		return err
	case head[at] == packedKind || head[at] == userKind:
		s.door.refused.Message.Add(1)
		return errPacked
	case head[at] != stateKind:
		return nil
	}
	announced, err := s.announced(at + 1)
	if err == nil {
		err = s.take(announced)
	}
	return err
}

// stateFields are the head of a state, as the library writes it: a value follows each.
var stateFields = [...]string{"\x83\xa4Join", "\xa5Nodes", "\xacUserStateLen"}

// announced is how much memory the head of a state asks for, which begins at this byte.
func (s *stream) announced(at int) (int64, error) {
	var values [len(stateFields)]int64
	for i, field := range stateFields {
		head, err := s.in.Peek(at + len(field) + 1)
		if err != nil {
			return 0, err
		}
		first := head[len(head)-1]
		width := widthOf(first)
		if string(head[at:len(head)-1]) != field || width < 0 {
			s.door.refused.Message.Add(1)
			return 0, errPacked
		}
		if at = len(head) + width; width == 0 {
			values[i] = int64(first)
			continue
		}
		if head, err = s.in.Peek(at); err != nil {
			return 0, err
		}
		padded := append(make([]byte, 8-width), head[at-width:]...)
		values[i] = int64(min(binary.BigEndian.Uint64(padded), 1<<32))
	}
	return values[1]*nodeCost + values[2], nil
}

// widthOf is how many bytes a number or a truth value of MessagePack has behind its first one; -1:
// it is neither.
func widthOf(first byte) int {
	switch {
	case first < 0x80, first == 0xc2, first == 0xc3:
		return 0
	case first >= 0xcc && first <= 0xcf: // uint8 to uint64
		return 1 << (first - 0xcc)
	case first >= 0xd0 && first <= 0xd3: // int8 to int64
		return 1 << (first - 0xd0)
	}
	return -1
}

// packedPacket reports whether the library would unpack something of a packet.
func packedPacket(b []byte) bool {
	if len(b) > 1 && b[0] == labelKind {
		b = b[min(len(b), 2+int(b[1])):]
	}
	if len(b) >= 5 && b[0] == summedKind {
		b = b[5:]
	}
	return packed(b)
}

// packed reports whether a message is packed, or one of the messages in it.
func packed(b []byte) bool {
	switch {
	case len(b) < 2:
		return false
	case b[0] != manyKind:
		return b[0] == packedKind
	}
	n := int(b[1])
	if len(b) < 2+2*n {
		return false // the library drops it
	}
	lengths, rest := b[2:2+2*n], b[2+2*n:]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		length := int(binary.BigEndian.Uint16(lengths))
		if length > len(rest) {
			return false // the library reads no further
		}
		if packed(rest[:length]) {
			return true
		}
		rest = rest[length:]
	}
	return false
}
