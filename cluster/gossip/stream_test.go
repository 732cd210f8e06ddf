package gossip

import (
	"bytes"
	"compress/lzw"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// Kinds of messages of the library, as they stand on the wire.
const (
	errKind   = 13
	pingBytes = "\x00\x81\xa5SeqNo\x07" // a ping as the library writes it, without a name
)

// pack returns a message of the library, compressed as the library does it.
func pack(message string) []byte {
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	_, _ = io.WriteString(w, message)
	_ = w.Close()
	head := fmt.Sprintf("\x09\x82\xa4Algo\x00\xa3Buf\xda%c%c", b.Len()>>8, b.Len())
	return append([]byte(head), b.Bytes()...)
}

// several puts messages into one, as the library does it.
func several(messages ...[]byte) []byte {
	out := []byte{7, byte(len(messages))}
	for _, m := range messages {
		out = binary.BigEndian.AppendUint16(out, uint16(len(m)))
	}
	return append(out, bytes.Join(messages, nil)...)
}

// summed puts a checksum before a message, as the library does it.
func summed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{12}, crc32.ChecksumIEEE(message)),
		message...)
}

// sealed encrypts a message with the key k, as the library does it.
func sealed(message []byte, context string) []byte {
	block, _ := aes.NewCipher(keyOf('k'))
	gcm, _ := cipher.NewGCM(block)
	head := append([]byte{sealVersion}, make([]byte, gcm.NonceSize())...)
	return gcm.Seal(head, head[1:], message, []byte(context))
}

// sealedStream encrypts a message of a stream.
func sealedStream(message []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{sealedKind}, uint32(1+12+len(message)+16))
	return append(head, sealed(message, string(head)+testLabel[2:])...)
}

const testLabel = "\xf4\x04test"

// replies reports whether a node sends something back within the time that a ping takes.
func replies(t *testing.T, network string, g *Gossip, message []byte) bool {
	t.Helper()
	c, err := net.Dial(network, g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(append([]byte(testLabel), message...)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	b := make([]byte, 1024)
	n, _ := c.Read(b)
	return n > 0 && b[0] != errKind
}

// Promise: a node unpacks no message from the network, since no node packs one; it counts what it
// refuses, with a key and without, in packets and in streams. The same messages in clear are
// answered.
func TestCompressedGossipIsRefused(t *testing.T) {
	refused := new(Refused)
	open := real(t, "open", "127.0.0.1:0", func(c *Config) { c.Refused = refused })
	ping := []byte(pingBytes)
	for what, clear := range map[string][]byte{
		"a ping": ping, "with a sum": summed(ping), "of several": several(ping, ping),
	} {
		await(t, "a packet is answered: "+what, func() bool {
			return replies(t, "udp", open, clear)
		})
	}
	if !replies(t, "tcp", open, ping) {
		t.Error("a ping over a stream is not answered")
	}
	if n := refused.Message.Load(); n != 0 {
		t.Errorf("%d messages in clear are counted as refused", n)
	}
	locked := real(t, "locked", "127.0.0.1:0", func(c *Config) {
		c.Refused, c.Keys = refused, [][]byte{keyOf('k')}
	})
	for what, message := range map[string][]byte{
		"alone":                   pack(pingBytes),
		"with a sum":              summed(pack(pingBytes)),
		"of several":              several(ping[:1], pack(pingBytes)),
		"of several, of several":  several(several(pack(pingBytes))),
		"packed twice":            pack(string(pack(pingBytes))),
		"of several with a sum":   summed(several(pack(pingBytes))),
		"several that are packed": pack(string(several(ping))),
	} {
		before := refused.Message.Load()
		if replies(t, "udp", open, message) {
			t.Errorf("a packed packet is answered: %s", what)
		}
		if n := refused.Message.Load() - before; n != 1 {
			t.Errorf("%d packets are counted as refused: %s", n, what)
		}
	}
	for _, c := range []struct {
		network string
		node    *Gossip
	}{{"tcp", open}, {"tcp", locked}, {"udp", locked}} {
		before := refused.Message.Load()
		if replies(t, c.network, c.node, pack(pingBytes)) {
			t.Errorf("a packed message is answered: %s, %s", c.network, c.node.roster.id)
		}
		if n := refused.Message.Load() - before; n != 1 {
			t.Errorf("%d are counted as refused: %s, %s", n, c.network, c.node.roster.id)
		}
	}
}

// Promise: what comes encrypted is looked at as what comes in clear: also of a message that has the
// key nothing is unpacked, no more memory is taken than there is room for, and none ends the node,
// as an empty one and one with a wrong padding would do in the library.
func TestEncryptedGossipIsLookedInto(t *testing.T) {
	refused := new(Refused)
	g := real(t, "locked", "127.0.0.1:0", func(c *Config) {
		c.Refused, c.Keys = refused, [][]byte{keyOf('k')}
	})
	inPacket := func(message []byte) []byte { return sealed(message, testLabel[2:]) }
	ping := []byte(pingBytes)
	answered := func() bool {
		return replies(t, "udp", g, inPacket(ping)) && replies(t, "tcp", g, sealedStream(ping))
	}
	await(t, "encrypted pings are answered", answered)
	if n := refused.Message.Load() + refused.Room.Load(); n != 0 {
		t.Errorf("%d encrypted pings are counted as refused", n)
	}
	old := inPacket(bytes.Repeat([]byte{0xff}, 16)) // the last byte: how long the padding is
	old[0] = 0
	many := "\x06\x83\xa4Join\xc2\xa5Nodes\xce\x00\x10\x00\x00\xacUserStateLen\x00"
	for what, c := range map[string]struct {
		network string
		message []byte
	}{
		"a packed packet":               {"udp", inPacket(pack(pingBytes))},
		"one of several with a sum":     {"udp", inPacket(summed(several(ping, pack(pingBytes))))},
		"a packet with a wrong padding": {"udp", old},
		"a packed stream":               {"tcp", sealedStream(pack(pingBytes))},
		"an empty stream":               {"tcp", sealedStream(nil)},
		"a message of a user":           {"tcp", sealedStream([]byte("\x08\x81\xa1x\x01x"))},
		"a million nodes":               {"tcp", sealedStream([]byte(many))},
	} {
		before := refused.Message.Load() + refused.Room.Load()
		if replies(t, c.network, g, c.message) {
			t.Errorf("%s is answered", what)
		}
		if n := refused.Message.Load() + refused.Room.Load() - before; n != 1 {
			t.Errorf("%s: %d are counted as refused", what, n)
		}
	}
	await(t, "encrypted pings are answered still", answered)
}

func doorOf(g *Gossip) *door { return g.config.transport.(*door) }

// allocated is how much memory the process takes while f runs.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Promise: a stream is charged for what it announces before the library makes room for it, and for
// what has come of it; all streams together are bounded. Refusals are counted.
func TestStreamsAreBounded(t *testing.T) {
	refused := new(Refused)
	open := real(t, "open", "127.0.0.1:0", func(c *Config) { c.Refused = refused })
	locked := real(t, "locked", "127.0.0.1:0", func(c *Config) {
		c.Refused, c.Keys = refused, [][]byte{keyOf('k')}
	})
	state := func(nodes, bytes uint32) string {
		return "\x06\x83\xa4Join\xc3\xa5Nodes\xce" +
			string(binary.BigEndian.AppendUint32(nil, nodes)) +
			"\xacUserStateLen\xce" + string(binary.BigEndian.AppendUint32(nil, bytes))
	}
	long := bytes.Repeat([]byte{'x'}, 1<<20)
	for what, c := range map[string]struct {
		node *Gossip
		head string
		more int // MiB
	}{
		"a million nodes":          {open, state(1<<20, 0), 0},
		"much of a user":           {open, state(1, 20<<20), 0},
		"a message of a user":      {open, "\x08\x81\xaaUserMsgLen\xce\x01\x3f\xff\xff", 0},
		"a head of another form":   {open, "\x06\x83\xa1x\xa1y" + state(1, 0)[2:], 0},
		"encrypted with no key":    {locked, "\x0a\x01\x3f\xff\xff", 19},
		"a name without an end":    {open, "\x00\x81\xa4Node\xdb\x01\x3f\xff\xff", 19},
		"a record without an end":  {open, state(1, 0) + "\x81\xa4Meta\xdb\x01\x3f\xff\xff", 19},
		"a label and nothing else": {open, "", 0},
	} {
		before := refused.Message.Load() + refused.Room.Load()
		took := allocated(func() {
			conn, err := net.Dial("tcp", c.node.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, testLabel+c.head)
			for range c.more {
				if _, err := conn.Write(long); err != nil {
					break
				}
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, _ = io.Copy(io.Discard, conn)
		})
		if took > 8*roomForStreams {
			t.Errorf("%s: %d MiB are allocated", what, took>>20)
		}
		n := refused.Message.Load() + refused.Room.Load() - before
		if want := uint64(min(1, len(c.head))); n != want {
			t.Errorf("%s: %d streams are counted as refused, want %d", what, n, want)
		}
	}
	await(t, "what streams had is given back", func() bool {
		return doorOf(open).room.free() == roomForStreams &&
			doorOf(locked).room.free() == roomForStreams
	})
}

// Promise: streams of one address leave room for those of another, and what is given back can be
// taken again.
func TestStreamsOfAnAddressLeaveRoom(t *testing.T) {
	r := newRoom()
	took := func(from string) (n int) {
		for r.take(from, streamCost) {
			n++
		}
		return n
	}
	all := roomForStreams / streamCost
	first, second := took("a"), took("b")
	if first != all/2 || second != all/4 {
		t.Errorf("of %d streams one address has %d, then another one %d", all, first, second)
	}
	r.give("a", int64(first*streamCost))
	r.give("b", int64(second*streamCost))
	if again := took("c"); again != first || len(r.by) != 1 {
		t.Errorf("later an address has %d, and %d are known", again, len(r.by))
	}
}
