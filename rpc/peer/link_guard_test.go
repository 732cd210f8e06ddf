package peer

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/rpc/rpctest"
)

// rawPeer greets as me on each link, and then does what serve does.
func rawPeer(t *testing.T, me greeting, serve func(k *link)) cluster.Member {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	t.Cleanup(func() { l.Close(); served.Wait() })
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				io.ReadFull(conn, make([]byte, len(linkPreface)))
				k := newLink(conn, maxRead)
				if _, _, _, err := k.greeted(); err == nil && k.greet(me) == nil {
					serve(k)
				}
			})
		}
	})
	return cluster.Member{ID: me.node, Boot: me.boot, PeerAddr: l.Addr().String()}
}

// Promise: a stranger that answers over a link is noticed before anything is asked of it, and so is
// one that says nothing.
func TestStrangersOnLinksAreUnsent(t *testing.T) {
	s := newStations(t, 1)[0]
	asked := func(k *link) {
		if kind, _, err := k.read(maxRead); err == nil {
			t.Errorf("a stranger was sent a message of the kind %q", rune(kind))
		}
	}
	other := rawPeer(t, greeting{"other", "n2", 2}, asked)
	wantCall(t, s.call(other, "a", time.Minute), true, `it names cluster "other"`)
	later := rawPeer(t, greeting{testCluster, "n2", 3}, asked)
	later.Boot = 2
	c := s.call(later, "a", time.Minute)
	wantCall(t, c, true, "another node answers there: n2, boot 0000000000000003")
	if !errors.Is(c.Err, cluster.ErrGone) {
		t.Errorf("%v does not say that the peer is gone", c.Err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	silent := cluster.Member{ID: "n2", Boot: 2, PeerAddr: l.Addr().String()}
	wantCall(t, s.call(silent, "a", time.Minute), true, errNoGreeting.Error())
	s.peers.Close()
}

// Promise: a peer that names itself and hangs up, again and again, is tried as seldom as one that
// is not there.
func TestPeerThatHangsUpIsLeftAlone(t *testing.T) {
	s := newStations(t, 1)[0]
	var links atomic.Int64
	member := rawPeer(t, greeting{testCluster, "n2", 2}, func(*link) { links.Add(1) })
	if c := s.call(member, "a", time.Second); c.Err == nil {
		t.Errorf("nobody has answered %+v", c)
	}
	time.Sleep(retryMax)
	// pauses that begin with retryMin and double make five or six in that time
	if n := links.Load(); n > 10 {
		t.Errorf("it was called %d times in %v", n, retryMax)
	}
	s.peers.Close()
}

// Promise: what a stopping peer did not come to is "not sent", over a link as well. The next link
// begins with nothing unread.
func TestUntouchedOnLinkIsUnsent(t *testing.T) {
	s := newStations(t, 1)[0]
	got := make(chan struct{}, 10)
	var once sync.Once
	member := rawPeer(t, greeting{testCluster, "n2", 2}, func(k *link) {
		first := false
		once.Do(func() { first = true })
		for n := 0; n < 3 || !first; n++ {
			if _, _, err := k.read(maxRead); err != nil {
				return
			}
			got <- struct{}{}
		}
		k.end(1, status.Error(codes.Unavailable, "stopping"))
		io.Copy(io.Discard, k.conn)
	})
	calls := make([]chan cluster.Call, 3)
	for i := range calls {
		calls[i] = make(chan cluster.Call, 1)
		go func() { calls[i] <- s.call(member, "a", time.Minute) }()
		<-got // one after the other, so that each has a frame and a known tag
	}
	wantCall(t, <-calls[0], false, "ended before it answered")
	wantCall(t, <-calls[1], true, "before it came to this ask")
	wantCall(t, <-calls[2], true, "before it came to this ask")
	l := (*s.peers.lines.Load())[lineTo{"n2", member.PeerAddr, 2}]
	rpctest.Eventually(t, "there is another link", func() bool {
		return s.peers.stats.Streams.Load() == 2
	})
	rpctest.Eventually(t, "nothing is unread", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.down == nil && l.written > 0 && l.reached == l.written
	})
	s.peers.Close()
}

// brokenCarrier sends nothing.
type brokenCarrier struct{ carrier }

func (brokenCarrier) send([]byte) error { return errors.New("it is broken") }

// Promise: what could not be sent whole is "not sent", and its caller hears that at once.
func TestBrokenOffIsUnsent(t *testing.T) {
	s := newStations(t, 1)[0]
	l := s.bareLine(brokenCarrier{})
	deadline := s.clock.Now().Add(time.Minute)
	c := cluster.Call{Deadline: deadline, Ask: &cluster.Ask{Hop: 1, Deadline: deadline}}
	lt := l.post(&c)
	l.start()
	lt.await()
	wantCall(t, c, true, "it is broken")
	if !errors.Is(c.Err, cluster.ErrBroken) {
		t.Errorf("%v does not say that the stream is broken", c.Err)
	}
}

// Promise: an answer that comes late is not sent after the last words of a door.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	sink := &sinkCarrier{}
	e := &exchange{door: newDoor(t), to: sink, ended: true}
	if e.answerLate(roomForHead(nil)); sink.sent != 0 {
		t.Errorf("%d bytes were sent after the end", sink.sent)
	}
}

// Promise: when the certificate of a door is renewed, it offers links with the new one too.
func TestRenewedDoorOffersLinks(t *testing.T) {
	s := newStations(t, 2, five)
	a := rpctest.NewAuthority(t, "peers")
	as(a, "n1", cluster.RoleMember)
	as(a, "n2", cluster.RoleMember)
	now := a.Config("n2")
	sealed := s[1].member
	sealed.PeerAddr = s[1].open(NewServer(ServerConfig{
		Node: s[1].node, Cluster: testCluster, Clock: s[1].clock, TLS: &tls.Config{
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now, nil },
		},
	}))
	caller := NewLines(LinesConfig{
		ID: "n1", Boot: 1, Cluster: testCluster, Clock: s[0].clock, TLS: a.Config("n1"),
	})
	defer caller.Close()
	from := &station{clock: s[0].clock, peers: caller}
	if c := from.call(sealed, rpctest.OwnKey(s[1].node, 0), time.Minute); c.Err != nil {
		t.Fatal(c.Err)
	}
	if c := from.carrierTo(sealed); !isA[*link](c) {
		t.Errorf("two nodes talk over %T; want a link", c)
	}
}

// Promise: a peer that does not read what it has asked for keeps no door from closing.
func TestDoorClosesOnPeersThatDoNotRead(t *testing.T) {
	s := newStations(t, 1)[0]
	k := dialLink(t, s.member.PeerAddr, greeting{testCluster, "n9", 9})
	frame := append(roomForHead(nil), frameOf(t, goodFrame())...)
	frames := ""
	for range 1000 {
		frame[0] = byte(linkFrame)
		frame[3], frame[4] = byte((len(frame)-headSize)>>8), byte(len(frame)-headSize)
		frames += string(frame)
	}
	var late net.Error
	for {
		k.conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := io.WriteString(k.conn, frames); errors.As(err, &late) && late.Timeout() {
			break // the door waits for its answers to be read
		} else if err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan struct{})
	go func() { s.doors[0].GracefulStop(); close(closed) }()
	select {
	case <-closed:
	case <-rpctest.Patience(t).Done():
		t.Fatal("the door does not close")
	}
}

// Promise: a peer that still sends while a door closes hears how far the door came.
func TestLastWordsReachPeersThatSend(t *testing.T) {
	frame := append(roomForHead(nil), frameOf(t, goodFrame())...)
	for range 10 {
		s := newStations(t, 1)[0]
		var all sync.WaitGroup
		begun := make(chan struct{}, 2)
		for i := range 2 {
			k := dialLink(t, s.member.PeerAddr, greeting{testCluster, "n9", uint64(9 + i)})
			if _, _, err := k.read(maxWord); err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				for mine := slices.Clone(frame); k.send(mine) == nil; {
				}
			})
			all.Go(func() {
				var first sync.Once
				err := k.receive(func([]byte) error {
					first.Do(func() { begun <- struct{}{} })
					return nil
				})
				var end *endError
				if !errors.As(err, &end) || end.served == 0 {
					t.Errorf("a link ends with %v", err)
				}
				k.conn.Close()
			})
		}
		for range 2 {
			<-begun
		}
		s.doors[0].GracefulStop()
		all.Wait()
	}
}
