package gossip

import (
	"bufio"
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
	errNoRoom  = errors.New("gossip: streams take too much memory together; this one is closed")
	errForeign = errors.New("gossip: a message that no node sends; the stream is closed")
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
	ahead  []byte // read by look, and not by the library yet
	looked bool
	wrong  error // why it is not read further

	form    *form // nil: it has none that can be checked
	kindsTo int   // bytes that come before what has a form

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
	if n = copy(b, s.ahead); n > 0 {
		if s.ahead = s.ahead[n:]; len(s.ahead) == 0 {
			s.ahead = nil
		}
		return n, nil
	}
	n, err = s.readPaid(b)
	if s.form != nil && n > 0 {
		before := min(n, s.kindsTo)
		s.kindsTo -= before
		if !s.form.pass(b[before:n]) {
			s.door.refused.Message.Add(1)
			s.wrong = errForeign
			return 0, s.wrong
		}
	}
	return n, err
}

// readPaid reads, and charges the stream with what has come.
func (s *stream) readPaid(b []byte) (n int, err error) {
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
