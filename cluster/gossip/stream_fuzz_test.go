package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// fed is a library behind a door, without a network. It reads what a test feeds it, and what it
// sends is looked at by the door, as another node's door would do.
type fed struct {
	memberlist.NodeAwareTransport // nil: nobody is dialled
	packets                       chan *memberlist.Packet
	streams                       chan net.Conn
	door                          *door
	all                           bool       // nodes become members
	mu                            sync.Mutex // guards what follows
	said                          []string   // by the library
	sent                          [][]byte   // packets
}

var fedAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}

func (*fed) FinalAdvertiseAddr(string, int) (net.IP, int, error) { return fedAddr.IP, 9, nil }
func (f *fed) PacketCh() <-chan *memberlist.Packet               { return f.packets }
func (f *fed) StreamCh() <-chan net.Conn                         { return f.streams }
func (*fed) Shutdown() error                                     { return nil }

func (f *fed) WriteToAddress(b []byte, _ memberlist.Address) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, slices.Clone(b))
	return time.Now(), nil
}

func (*fed) DialAddressTimeout(memberlist.Address, time.Duration) (net.Conn, error) {
	return nil, errors.New("nobody is there")
}

// Write is what the library logs.
func (f *fed) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, string(line))
	return len(line), nil
}

// NotifyAlive refuses nodes: under a fuzzer there shall not be more and more.
func (f *fed) NotifyAlive(n *memberlist.Node) error {
	if n.Name != "fed" && !f.all {
		return errors.New("another one")
	}
	return nil
}

// feed starts a library of the cluster "test"; with a key, it encrypts.
func feed(f testing.TB, key []byte) *fed {
	e := &fed{packets: make(chan *memberlist.Packet), streams: make(chan net.Conn)}
	logger := log.New(e, "", 0)
	e.door = &door{
		NodeAwareTransport: e, log: log.New(io.Discard, "", 0), refused: new(Refused),
		room: newRoom(),
	}
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label, c.Transport, c.Logger = "fed", "test", e, logger
	c.EnableCompression, c.Alive = false, e
	c.ProbeInterval, c.GossipInterval, c.PushPullInterval = 0, 0, 0
	if key != nil {
		ring, err := memberlist.NewKeyring(nil, key)
		if err != nil {
			f.Fatal(err)
		}
		c.Keyring, e.door.keys, e.door.label = ring, ring, c.Label
	}
	list, err := memberlist.Create(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = list.Shutdown() })
	return e
}

// takeSaid returns what the library has said and sent since the last time.
func (f *fed) takeSaid() (said []string, sent [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	said, sent = f.said, f.sent
	f.said, f.sent = nil, nil
	return said, sent
}

// unpacks are the library's words for a packed message that it could not unpack, as most of those
// are that a fuzzer finds.
const unpacks = "Failed to decompress"

// Promise: of a packet that the door lets through the library unpacks nothing, and takes little
// memory for it; it is not too long; what the library sends itself is let through.
func FuzzPacket(f *testing.F) {
	ping := []byte(pingBytes)
	for _, message := range [][]byte{
		ping, pack(pingBytes), summed(ping), summed(pack(pingBytes)), several(ping, ping),
		several(ping[:1], pack(pingBytes)), several(several(pack(pingBytes))),
		{packedKind},
		several([]byte{packedKind}), several(),
		{labelKind, 0, packedKind, 0},
		several(nil, ping), bytes.Repeat([]byte{manyKind, 1, 1, 0}, 300),
		{summedKind, 0, 0, 0, 0},
		bytes.Repeat([]byte("x"), longestPacket+1),
		[]byte("\x01\x84\xa5SeqNo\x01\xa6Target\xc4\x04\x7f\x00\x00\x01\xa4Port\x01\xa4Node\xa1x"),
		[]byte("\x00\x81\xa4Node\xdbe\xdb\x1a?\xff\xff"),
		[]byte("\x00\x81\xa4none\xc9e\xdb\x1a?\xff\xff"),
		[]byte("\x03\x83\xabIncarnation\x01\xa4Node\xa3fed\xa4From\xa1x"),
	} {
		f.Add(message)
	}
	open, locked := feed(f, nil), feed(f, keyOf('k'))
	f.Fuzz(func(t *testing.T, message []byte) {
		open.feedPacket(t, message)
		open.feedPacket(t, append([]byte(testLabel), message...))
		locked.feedPacket(t, append([]byte(testLabel), sealed(message, testLabel[2:])...))
		locked.feedPacket(t, append([]byte(testLabel), message...))
	})
}

// feedPacket sends a packet to the door, and looks at what becomes of it. What else the process
// does takes memory too, so that counts only if it takes much each time.
func (f *fed) feedPacket(t *testing.T, b []byte) {
	var took uint64
	for range 5 {
		if took = f.packetOnce(t, b); took <= 1<<20 {
			return
		}
	}
	t.Fatalf("for a packet of %d bytes it takes %d", len(b), took)
}

// packetOnce returns how much memory a packet took, if it is let through.
func (f *fed) packetOnce(t *testing.T, b []byte) (took uint64) {
	p, ok := f.door.admitPacket(&memberlist.Packet{Buf: slices.Clone(b), From: fedAddr})
	if !ok {
		return 0
	}
	if len(p.Buf) > longestPacket || !bytes.Equal(p.Buf, b) {
		t.Fatalf("%d bytes became %d", len(b), len(p.Buf))
	}
	f.takeSaid()
	before := allocatedBytes()
	f.packets <- p
	last := []byte("\xf4\x01x") // of another cluster: the library says so
	f.packets <- &memberlist.Packet{Buf: last, From: fedAddr}
	for done := false; !done; runtime.Gosched() {
		said, sent := f.takeSaid()
		for _, b := range sent {
			if f.door.foreign(b) || len(b) > longestPacket {
				t.Fatalf("what a node sends is refused: %q", b)
			}
		}
		for _, line := range said {
			if strings.Contains(line, unpacks) {
				t.Fatalf("the library unpacks of %q: %q", b, said)
			}
			done = done || strings.Contains(line, `unacceptable label "x"`)
		}
	}
	return allocatedBytes() - before
}

// one is a connection on which some bytes come and then nothing more.
type one struct {
	net.Conn // nil
	in       *bytes.Reader
	out      bytes.Buffer
	closed   chan struct{}
	once     sync.Once
}

func (c *one) Read(b []byte) (int, error)       { return c.in.Read(b) }
func (c *one) Write(b []byte) (int, error)      { return c.out.Write(b) }
func (c *one) RemoteAddr() net.Addr             { return fedAddr }
func (c *one) SetDeadline(time.Time) error      { return nil }
func (c *one) SetReadDeadline(time.Time) error  { return nil }
func (c *one) SetWriteDeadline(time.Time) error { return nil }
func (c *one) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func oneOf(b []byte) *one { return &one{in: bytes.NewReader(b), closed: make(chan struct{})} }

// allocatedBytes is how much memory the process has taken, ever.
func allocatedBytes() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// Promise: of a stream that the door lets through the library unpacks nothing, and takes a few
// times as much memory as the stream was charged with; all of it is given back; what the library
// answers is let through.
func FuzzStream(f *testing.F) {
	state := "\x06\x83\xa4Join\xc3\xa5Nodes\x01\xacUserStateLen\x04"
	node := "\x87\xa4Addr\xc4\x04\x7f\x00\x00\x01\xabIncarnation\x01\xa4Meta\xc4\x00" +
		"\xa4Name\xa1x\xa4Port\x09\xa5State\x00\xa3Vsn\xc4\x06\x01\x05\x02\x01\x01\x01"
	for _, message := range []string{
		pingBytes, string(pack(pingBytes)), state + node + "abcd",
		"\x06\x83\xa4Join\xc2\xa5Nodes\xce\x00\x10\x00\x00\xacUserStateLen\x00",
		"\x06\x83\xa4Join\xc2\xa5Nodes\x01\xacUserStateLen\xd2\x01\x3f\xff\xff" + node,
		"\x06\x83\xa4Join\xc2\xa5Nodes\xd0\xff\xacUserStateLen" +
			"\xd3\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x08\x81\xaaUserMsgLen\xce\x01\x3f\xff\xff", "\x0a\x01\x3f\xff\xff", "\x09",
		"\x06", "\xf4",
		"\x00\x81\xa4Node\xdb\x01\x3f\xff\xff", "\x06\x83\xa1x\xa1y", "\x0d\x81\xa5Error\xa1x",
		state + "\x81\xa4Meta\xdb\x01\x3f\xff\xff", "\xf4\x00\x09", "",
	} {
		f.Add([]byte(message))
	}
	open, locked := feed(f, nil), feed(f, keyOf('k'))
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > roomForStreams/8 {
			t.Skip()
		}
		open.feedStream(t, message)
		open.feedStream(t, append([]byte(testLabel), message...))
		locked.feedStream(t, append([]byte(testLabel), sealedStream(message)...))
		locked.feedStream(t, append([]byte(testLabel), message...))
	})
}

// feedStream has a stream come to the door, and looks at what becomes of it. What else the process
// does takes memory too, so that counts only if it takes much each time.
func (f *fed) feedStream(t *testing.T, b []byte) (answer []byte) {
	var took, most uint64
	for range 5 {
		answer, took, most = f.streamOnce(t, b)
		if took <= most || f.all { // nodes that are taken in are kept
			return answer
		}
	}
	t.Fatalf("of a stream of %d bytes it takes %d, want at most %d", len(b), took, most)
	return nil
}

// streamOnce also returns how much memory the stream took, and how much it may take.
func (f *fed) streamOnce(t *testing.T, b []byte) (answer []byte, took, most uint64) {
	f.takeSaid()
	before := allocatedBytes()
	c := oneOf(b)
	conn, ok := f.door.admitStream(c)
	if !ok {
		t.Fatal("there is no room for a stream")
	}
	f.streams <- conn
	<-c.closed
	s := conn.(*stream)
	took, most = allocatedBytes()-before, uint64(8*s.taken+roomForStreams/8)
	said, _ := f.takeSaid()
	if text := strings.Join(said, ""); strings.Contains(text, "lzw:") {
		t.Fatalf("the library unpacks of %q: %q", b, text)
	}
	checkAnswer(t, f, c.out.Bytes())
	if f.door.room.free() != roomForStreams {
		t.Fatal("a stream that has ended keeps room")
	}
	return c.out.Bytes(), took, most
}

// Promise: the state of a cluster of some hundred nodes is let through, in clear and encrypted,
// also as the library writes it.
func TestStatesOfManyNodesAreLetThrough(t *testing.T) {
	const nodes = 300
	state := fmt.Sprintf("\x06\x83\xa4Join\xc2\xa5Nodes\xcd%c%c\xacUserStateLen\x00",
		nodes>>8, nodes&0xff)
	for i := range nodes {
		state += fmt.Sprintf("\x87\xa4Addr\xc4\x04\x7f\x00\x00\x01\xabIncarnation\x01"+
			"\xa4Meta\xc5\x02\x00%512d\xa4Name\xaanode%06d\xa4Port\x09\xa5State\x00"+
			"\xa3Vsn\xc4\x06\x01\x05\x02\x00\x00\x00", 0, i)
	}
	for what, key := range map[string][]byte{"in clear": nil, "encrypted": keyOf('k')} {
		e, b := feed(t, key), []byte(state)
		e.all = true
		if key != nil {
			b = sealedStream(b)
		}
		e.feedStream(t, append([]byte(testLabel), b...))
		answer := e.feedStream(t, append([]byte(testLabel), b...))
		if n := bytes.Count(answer, []byte("Name")); key == nil && n != nodes+1 ||
			len(answer) < len(b)/2 {
			t.Errorf("%s: the answer has %d bytes, and %d nodes", what, len(answer), n)
		}
	}
}

// checkAnswer looks at an answer of the library, as the door of the node that gets it does.
func checkAnswer(t *testing.T, e *fed, answer []byte) {
	if len(answer) == 0 {
		return
	}
	conn, ok := e.door.streamOver(oneOf(answer))
	if !ok {
		t.Fatal("there is no room for an answer")
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, answer) {
		t.Fatalf("of an answer of %d bytes %d are let through: %v", len(answer), len(got), err)
	}
}
