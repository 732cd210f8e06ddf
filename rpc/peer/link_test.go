package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"penstock/cluster"
	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/rpc/rpctest"
)

// carrierTo is what the line to m sends over.
func (s *station) carrierTo(m cluster.Member) carrier {
	l := (*s.peers.lines.Load())[lineTo{m.ID, m.PeerAddr, m.Boot}]
	l.sending.Lock()
	defer l.sending.Unlock()
	return l.out
}

func isA[T carrier](c carrier) bool {
	_, ok := c.(T)
	return ok
}

// Promise: nodes of this release talk over links, with and without TLS, and over streams of gRPC to
// a node of a release that has no links.
func TestNodesTalkOverLinks(t *testing.T) {
	s := newStations(t, 2, five)
	if c := s[0].call(s[1].member, rpctest.OwnKey(s[1].node, 0), time.Minute); c.Err != nil {
		t.Fatal(c.Err)
	}
	if c := s[0].carrierTo(s[1].member); !isA[*link](c) {
		t.Errorf("two nodes talk over %T; want a link", c)
	}
	_, member, _ := serveMute(t, "n9", 9)
	wantCall(t, s[0].call(member, "a", 100*time.Millisecond), false, "no answer from peer n9")
	if c := s[0].carrierTo(member); !isA[grpcCarrier](c) {
		t.Errorf("a node and an earlier release talk over %T; want a stream of gRPC", c)
	}

	// The same with certificates.
	a := rpctest.NewAuthority(t, "peers")
	as(a, "n1", cluster.RoleMember)
	as(a, "n2", cluster.RoleMember)
	earlier := grpc.NewServer(grpc.Creds(credentials.NewTLS(a.Config("n2"))))
	peerv1.RegisterPeerServer(earlier, &mute{me: greeting{testCluster, "n2", 2}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go earlier.Serve(l)
	t.Cleanup(earlier.Stop)
	t.Cleanup(s[0].peers.Close)
	s[0].peers = NewLines(LinesConfig{
		ID: "n1", Boot: 1, Cluster: testCluster, Clock: s[0].clock, TLS: a.Config("n1"),
	})
	sealed := s[1].member
	sealed.PeerAddr = l.Addr().String()
	wantCall(t, s[0].call(sealed, "a", time.Second), false, "no answer from peer n2")
	if c := s[0].carrierTo(sealed); !isA[grpcCarrier](c) {
		t.Errorf("a node and an earlier release talk over %T; want a stream of gRPC", c)
	}
	sealed.PeerAddr = s[1].open(NewServer(ServerConfig{
		Node: s[1].node, Cluster: testCluster, Clock: s[1].clock, TLS: a.Config("n2"),
	}))
	if c := s[0].call(sealed, rpctest.OwnKey(s[1].node, 0), time.Minute); c.Err != nil {
		t.Fatal(c.Err)
	}
	if c := s[0].carrierTo(sealed); !isA[*link](c) {
		t.Errorf("two nodes talk over %T; want a link", c)
	}
}

// dialLink begins a link to a door as any program could.
func dialLink(t *testing.T, addr string, me greeting) *link {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write([]byte(linkPreface)); err != nil {
		t.Fatal(err)
	}
	k := newLink(conn, maxReply)
	if err := k.greet(me); err != nil {
		t.Fatal(err)
	}
	return k
}

// TestLinkDoor speaks to the door with generated code, which must understand it and be understood.
func TestLinkDoor(t *testing.T) {
	s := newStations(t, 1)[0]
	k := dialLink(t, s.member.PeerAddr, greeting{testCluster, "n9", 9})
	kind, b, err := k.read(maxReply)
	var g peerv1.Greeting
	if err == nil {
		err = proto.Unmarshal(b, &g)
	}
	if err != nil || kind != linkGreeting || string(g.Cluster) != testCluster ||
		string(g.Node) != "n1" || g.Boot != 1 || g.Protocol != protocol {
		t.Fatalf("the door greets with %q %v, %v", kind, &g, err)
	}
	f := goodFrame()
	f.Asks[1].Items[1].Key = nil
	for i := range 2 {
		if err := k.send(append(roomForHead(nil), frameOf(t, f)...)); err != nil {
			t.Fatal(err)
		}
		kind, b, err := k.read(maxReply)
		var r peerv1.Reply
		if err == nil {
			err = proto.Unmarshal(b, &r)
		}
		if err != nil || kind != linkFrame || r.Answers[0].Outcomes[0].Remaining != int64(4-i) ||
			!strings.Contains(r.Answers[1].Error, "items[1].key") {
			t.Errorf("frame %d is answered with %q %v, %v", i, kind, &r, err)
		}
	}
	// A door that closes says how far it came.
	s.doors[0].GracefulStop()
	kind, b, err = k.read(maxReply)
	var end peerv1.End
	if err == nil {
		err = proto.Unmarshal(b, &end)
	}
	if err != nil || kind != linkEnd || end.Served != 2 || codes.Code(end.Code) !=
		codes.Unavailable || end.Text != "this node is stopping" {
		t.Errorf("the door ends with %q %v, %v", kind, &end, err)
	}
}

// Promise: strangers are told why they are refused, and nothing of what they ask is decided.
func TestLinkDoorRefuses(t *testing.T) {
	s := newStations(t, 1)[0]
	for _, row := range []struct {
		name string
		me   greeting
		code codes.Code
		want string
	}{
		{"another cluster", greeting{"other", "n9", 9}, codes.PermissionDenied, `to "other"`},
		{
			"the boot of another node",
			greeting{testCluster, "n9", 1},
			codes.PermissionDenied,
			`that of "n1"`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := dialLink(t, s.member.PeerAddr, row.me)
			k.send(append(roomForHead(nil), frameOf(t, goodFrame())...))
			err := k.receive(func([]byte) error { return nil })
			if status.Code(err) != row.code || !strings.Contains(err.Error(), row.want) {
				t.Errorf("it ends with %v", err)
			}
			if _, err := k.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the door keeps the connection: %v", err)
			}
		})
	}
	if n := s.node.Stats().Delivered.Load(); n != 0 {
		t.Errorf("%d asks of strangers were decided", n)
	}
}

// Promise: what is no link, or is larger than a frame may be, is refused with a reason, and memory
// is taken for what has come, not for what is announced.
func TestBrokenLinks(t *testing.T) {
	s := newStations(t, 1)[0]
	me := greeting{testCluster, "n9", 9}
	for _, row := range []struct {
		name, sent, want string
	}{
		{"an unknown kind", "X\x00\x00\x00\x00", errNoLink.Error()},
		{"a second greeting", "G\x00\x00\x00\x00", "kind 'G'"},
		{"a frame that is too large", "F\x00\x40\x00\x01", "has 4194305 bytes"},
		{"a frame that is none", "F\x00\x00\x00\x01\xff", "a frame is not a protobuf message"},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := dialLink(t, s.member.PeerAddr, me)
			if _, _, err := k.read(maxWord); err != nil {
				t.Fatal(err)
			}
			io.WriteString(k.conn, row.sent)
			err := k.receive(func([]byte) error { return nil })
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("it ends with %v; want %q", err, row.want)
			}
		})
	}
	// Nobody keeps a connection without a greeting.
	conn, err := net.Dial("tcp", s.member.PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, linkPreface)
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a link without a greeting ends with %v", err)
	}
	head := binary.BigEndian.AppendUint32([]byte{byte(linkFrame)}, maxRead)
	come := append(head, make([]byte, 2*linkBuffer)...)
	large := newLink(bytesConn{rest: &come}, maxRead)
	if _, _, err := large.read(maxRead); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame that breaks off ends with %v", err)
	}
	if large.large == nil || cap(*large.large) > 8*linkBuffer {
		t.Error("memory is taken for more than has come")
	}
}

// Promise: a frame of any size that is accepted arrives as it was sent.
func TestLinksCarryFrames(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	k, far := newLink(here, maxReply), newLink(there, maxReply)
	sizes := []int{
		0, 1, linkBuffer - headSize, linkBuffer - 1, linkBuffer, linkBuffer + 1, 4 * linkBuffer,
		4*linkBuffer + 1, 1 << 20, maxRead, maxReply,
	}
	go func() {
		for i, n := range sizes {
			far.send(append(roomForHead(nil), strings.Repeat(string(rune('a'+i)), n)...))
		}
		far.end(7, status.Error(codes.Unavailable, "over"))
	}()
	i := 0
	err := k.receive(func(frame []byte) error {
		if want := strings.Repeat(string(rune('a'+i)), sizes[i]); string(frame) != want {
			t.Errorf("a frame of %d bytes arrives as %d others", sizes[i], len(frame))
		}
		i++
		return nil
	})
	var end *endError
	if i != len(sizes) || !errors.As(err, &end) || end.served != 7 || status.Code(err) !=
		codes.Unavailable {
		t.Errorf("%d frames have come, and %v", i, err)
	}
}

// silentLink is a peer that greets, and reads nothing more.
func silentLink(t *testing.T, me greeting) cluster.Member {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			io.ReadFull(conn, make([]byte, len(linkPreface)))
			k := newLink(conn, maxRead)
			if _, _, _, err := k.greeted(); err == nil {
				k.greet(me)
			}
		}
	}()
	return cluster.Member{ID: me.node, Boot: me.boot, PeerAddr: l.Addr().String()}
}

// Promise: no request hangs past its deadline, whatever the peer does not read: a caller that sends
// its ask itself does so only where that does not wait.
func TestNobodyWaitsForAPeerToRead(t *testing.T) {
	s := newStations(t, 1)[0]
	member := silentLink(t, greeting{testCluster, "n2", 2})
	key := strings.Repeat("k", cluster.MaxKey)
	ended := make(chan error)
	const rounds = 200
	go func() {
		for range rounds {
			deadline := s.clock.Now().Add(5 * time.Millisecond)
			ask := &cluster.Ask{Hop: 1, Deadline: deadline}
			for range 500 {
				ask.Items = append(ask.Items, cluster.AskItem{
					Limit: rpctest.MustLimit(five), Key: key, Cost: 1,
				})
			}
			calls := []cluster.Call{{To: member, Deadline: deadline, Ask: ask}}
			s.peers.Call(calls)
			ended <- calls[0].Err
		}
	}()
	late := time.After(time.Minute)
	for n := range rounds {
		select {
		case err := <-ended:
			if err == nil {
				t.Fatal("a peer that reads nothing has answered")
			}
		case <-late:
			t.Fatalf("only %d of %d calls have ended", n, rounds)
		}
	}
}

// Promise: whatever bytes come, a link ends with a reason or with what it read, and hands over no
// more than was sent.
func FuzzLink(f *testing.F) {
	rpctest.MinimizeBriefly()
	f.Add([]byte("F\x00\x00\x00\x02ab"))
	f.Add([]byte("G\x00\x00\x00\x00E\x00\x00\x00\x00"))
	f.Add([]byte("F\x00\x40\x00\x00"))
	f.Add(fmt.Append(nil, "E\x00\x00\x00\x04\x08\x01\x10\x0e"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k := newLink(bytesConn{rest: &b}, maxRead)
		sent, got := len(b), 0
		err := k.receive(func(frame []byte) error {
			got += headSize + len(frame)
			return nil
		})
		if err == nil || got > sent {
			t.Fatalf("%d bytes of %d were handed over, and it ended with %v", got, sent, err)
		}
	})
}

// bytesConn is a connection on which bytes have come, and no more do.
type bytesConn struct {
	net.Conn
	rest *[]byte
}

func (c bytesConn) Read(b []byte) (int, error) {
	if len(*c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, *c.rest)
	*c.rest = (*c.rest)[n:]
	return n, nil
}
