package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

var five = limiter.Spec{
	Name: "five", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 5,
	Per: 10 * time.Minute,
}

// call asks to for one unit of key through s.
func (s *station) call(to cluster.Member, key string, timeout time.Duration) cluster.Call {
	deadline := s.clock.Now().Add(timeout)
	calls := []cluster.Call{{To: to, Deadline: deadline, Ask: &cluster.Ask{
		Hop: 1, Deadline: deadline, Items: []cluster.AskItem{
			{Limit: rpctest.MustLimit(five), Key: key, Cost: 1},
		},
	}}}
	s.peers.Call(calls)
	return calls[0]
}

// wantCall checks how a call has ended.
func wantCall(t *testing.T, c cluster.Call, unsent bool, text string) {
	t.Helper()
	if c.Err == nil || errors.Is(c.Err, cluster.ErrUnsent) != unsent ||
		!strings.Contains(c.Err.Error(), text) {
		t.Errorf("call ended with %v; want unsent %t, and %q", c.Err, unsent, text)
	}
}

func TestPeerAnswers(t *testing.T) {
	s := newStations(t, 2, five)
	key := rpctest.OwnKey(s[1].node, 0)
	for i := range 6 {
		c := s[0].call(s[1].member, key, 5*time.Second)
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		if d := c.Answer.Items[0].Decision; d.Allowed != (i < 5) ||
			c.Answer.RingHash != s[1].node.View().RingHash() {
			t.Errorf("take %d: %+v", i+1, c.Answer)
		}
	}
	c := s[0].call(s[1].member, rpctest.OwnKey(s[0].node, 0), 5*time.Second)
	if c.Err != nil || c.Answer.Items[0].Status != cluster.StatusNotOwner ||
		c.Answer.Items[0].Owner != "n1" {
		t.Errorf("a key of n1 asked of n2: %+v, %v", c.Answer, c.Err)
	}
}

// Promise: a call to a peer that is not there says at once that nothing was sent, so it may be
// repeated anywhere.
func TestDeadPeerIsUnsent(t *testing.T) {
	s := newStations(t, 1)[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	dead := cluster.Member{ID: "n2", Boot: 2, PeerAddr: addr}
	for range 3 {
		wantCall(t, s.call(dead, "a", 10*time.Second), true, addr+": connect: connection refused")
	}
}

// Promise: no request hangs past its deadline. The peer takes the connection and never says a word.
func TestSilentPeerIsUnsent(t *testing.T) {
	s := newStations(t, 1)[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	silent := cluster.Member{ID: "n2", Boot: 2, PeerAddr: l.Addr().String()}
	wantCall(t, s.call(silent, "a", 30*time.Millisecond), true, "deadline")
}

// mute is a peer that greets and reads, and never answers.
type mute struct {
	peerv1.UnimplementedPeerServer
	me     greeting
	got    atomic.Int64 // asks
	leave  int64        // ends the stream after so many asks
	served string       // what the trailer says then
}

func (m *mute) Exchange(stream peerv1.Peer_ExchangeServer) error {
	stream.SendHeader(m.me.metadata())
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.got.Add(int64(len(f.Asks))) == m.leave {
			stream.SetTrailer(metadata.Pairs(servedKey, m.served))
			return status.Error(codes.Unavailable, "stopping")
		}
	}
}

func serveMute(t *testing.T, id string, boot uint64) (*mute, cluster.Member, *grpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mute{me: greeting{testCluster, id, boot}}
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	peerv1.RegisterPeerServer(s, m)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return m, cluster.Member{ID: id, Boot: boot, PeerAddr: l.Addr().String()}, s
}

// Promise: what was written and not answered is unknown, never "not sent".
func TestUnansweredIsUnknown(t *testing.T) {
	s := newStations(t, 1)[0]
	m, member, server := serveMute(t, "n2", 2)
	wantCall(t, s.call(member, "a", 500*time.Millisecond), false, "no answer from peer n2")
	if m.got.Load() != 1 {
		t.Fatalf("the peer got %d asks, want 1", m.got.Load())
	}
	// Killed with calls in flight: each ends, long before its deadline, as unknown.
	const calls = 50
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			wantCall(t, s.call(member, fmt.Sprint("k", i), time.Minute), false, "ended before it "+
				"answered")
		})
	}
	rpctest.Eventually(t, "all asks are there", func() bool { return m.got.Load() == 1+calls })
	server.Stop()
	wg.Wait()
	rpctest.Eventually(t, "the line knows that the peer is gone", func() bool {
		return errors.Is(s.call(member, "a", time.Minute).Err, cluster.ErrUnsent)
	})
}

// Promise: what a stopping peer did not come to is "not sent", and may be repeated anywhere.
func TestUntouchedIsUnsent(t *testing.T) {
	s := newStations(t, 1)[0]
	m, member, _ := serveMute(t, "n2", 2)
	m.leave, m.served = 3, "1"
	calls := make([]chan cluster.Call, m.leave)
	for i := range calls {
		calls[i] = make(chan cluster.Call, 1)
		go func() { calls[i] <- s.call(member, "a", time.Minute) }()
		if i < len(calls)-1 { // one after the other, so that each has a frame and a known tag
			rpctest.Eventually(t, "the ask is there",
				func() bool { return m.got.Load() == int64(i+1) })
		}
	}
	wantCall(t, <-calls[0], false, "ended before it answered")
	wantCall(t, <-calls[1], true, "before it came to this ask")
	wantCall(t, <-calls[2], true, "before it came to this ask")
}

// Promise: a line that is closed under a call ends the call.
func TestKeepClosesLines(t *testing.T) {
	s := newStations(t, 1)[0]
	m, member, _ := serveMute(t, "n2", 2)
	done := make(chan cluster.Call)
	go func() { done <- s.call(member, "a", time.Minute) }()
	rpctest.Eventually(t, "the ask is there", func() bool { return m.got.Load() == 1 })
	before := (*s.peers.lines.Load())[lineTo{"n2", member.PeerAddr, 2}]
	s.peers.Keep([]cluster.Member{s.member, member})
	if now := (*s.peers.lines.Load())[lineTo{"n2", member.PeerAddr, 2}]; now != before ||
		now == nil {
		t.Error("Keep exchanged the line of a member that stays")
	}
	restarted := member
	restarted.Boot = 3
	s.peers.Keep([]cluster.Member{s.member, restarted})
	wantCall(t, <-done, false, "peer n2")
	if n := len(*s.peers.lines.Load()); n != 1 {
		t.Errorf("%d lines, want one, to the new boot", n)
	}
	agent := cluster.Member{ID: "n3", Boot: 3, PeerAddr: "127.0.0.1:1", Role: cluster.RoleAgent}
	s.peers.Keep([]cluster.Member{s.member, restarted, agent})
	if n := len(*s.peers.lines.Load()); n != 1 {
		t.Errorf("%d lines, want one: agents own nothing that would have to be asked for", n)
	}
	s.peers.Close()
	wantCall(t, s.call(member, "a", time.Minute), true, "stopping")
}

// Promise: a stranger at a known address is noticed before anything is asked of it.
func TestStrangersAreUnsent(t *testing.T) {
	s := newStations(t, 1)[0]
	m, member, _ := serveMute(t, "n2", 2)
	for _, c := range []struct {
		name   string
		change func(m *cluster.Member)
	}{
		{"another boot", func(m *cluster.Member) { m.Boot = 3 }},
		{"another node", func(m *cluster.Member) { m.ID = "n3" }},
	} {
		expected := member
		c.change(&expected)
		t.Run(c.name, func(t *testing.T) {
			wantCall(t, s.call(expected, "a", time.Minute), true, "another node answers there: "+
				"n2, boot 0000000000000002")
		})
	}
	t.Run("no node at all", func(t *testing.T) {
		nobody := door.NewServer(grpc.NewServer(grpc.WaitForHandlers(true)),
			make(chan struct{}), nil)
		expected := cluster.Member{ID: "n1", Boot: 1, PeerAddr: s.open(nobody)}
		wantCall(t, s.call(expected, "a", time.Minute), true, "unknown service "+
			"penstock.peer.v1.Peer")
	})
	if m.got.Load() != 0 {
		t.Errorf("the stranger was asked %d times", m.got.Load())
	}
}

// Promise: strangers with another cluster's name are refused, and are told why.
func TestOtherClusterIsRefused(t *testing.T) {
	ours := newStation(t, "n1", 1, "blue")
	theirs := newStation(t, "n2", 2, "green")
	ours.see([]cluster.Member{ours.member})
	theirs.see([]cluster.Member{theirs.member})
	c := ours.call(theirs.member, "a", time.Minute)
	wantCall(t, c, true,
		`PermissionDenied desc = node n2 belongs to the cluster "green", the caller to "blue"`)
	if got := theirs.node.Stats().Delivered.Load(); got != 0 {
		t.Errorf("%d asks came through", got)
	}
}

// exchangeRaw opens a stream to s as any program could, and returns it.
func exchangeRaw(t *testing.T, s *station, md metadata.MD) peerv1.Peer_ExchangeClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.member.PeerAddr,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := peerv1.NewPeerClient(conn).Exchange(metadata.NewOutgoingContext(
		rpctest.Patience(t), md))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestPeerDoor speaks to the door with generated code, which must understand it and be understood.
func TestPeerDoor(t *testing.T) {
	s := newStations(t, 1)[0]
	me := greeting{testCluster, "n9", 9}

	t.Run("asks are answered, broken ones too", func(t *testing.T) {
		stream := exchangeRaw(t, s, me.metadata())
		f := goodFrame()
		f.Asks[1].Items[1].Key = nil
		for range 2 {
			if err := stream.Send(f); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if o := r.Answers[0].Outcomes; len(o) != 1 || o[0].Remaining != int64(4-i) {
				t.Errorf("reply %d: %v", i, r)
			}
			if !strings.Contains(r.Answers[1].Error, "items[1].key") {
				t.Errorf("the broken ask is answered with %v", r.Answers[1])
			}
		}
		header, err := stream.Header()
		if g, _, ok := readGreeting(header); err != nil || !ok || g.node != "n1" || g.boot != 1 ||
			g.cluster != testCluster {
			t.Errorf("the header names %+v, %t, %v", g, ok, err)
		}
		stream.CloseSend()
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("a stream that was closed ends with %v", err)
		}
		if got := first(stream.Trailer(), servedKey); got != "2" {
			t.Errorf("the trailer says that %q was the last tag served, want 2", got)
		}
	})
	for _, c := range []struct {
		name string
		md   metadata.MD
		code codes.Code
	}{
		{"nobody", nil, codes.FailedPrecondition},
		{"another protocol", metadata.Pairs(clusterKey, testCluster, nodeKey, "n9", bootKey, "9",
			protocolKey, "1"), codes.FailedPrecondition},
		{"another cluster", greeting{"other", "n9", 9}.metadata(), codes.PermissionDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			stream := exchangeRaw(t, s, c.md)
			stream.Send(goodFrame())
			_, err := stream.Recv()
			if status.Code(err) != c.code {
				t.Errorf("ended with %v, want %s", err, c.code)
			}
		})
	}
}

// Promise: a door that closes tells how far it got, so that nothing that it did not touch is
// reported as lost.
func TestDrainedDoorSaysWhatItServed(t *testing.T) {
	s := newStations(t, 2, five)
	stream := exchangeRaw(t, s[1], greeting{testCluster, "n9", 9}.metadata())
	if err := stream.Send(goodFrame()); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	s[1].doors[0].GracefulStop() // returns although a stream is open
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", err)
	}
	if got := first(stream.Trailer(), servedKey); got != "2" {
		t.Errorf("the trailer says that %q was the last tag served, want 2", got)
	}
}

// Promise: once the trailer is written, no frame is served any more.
func TestEndedStreamServesNothing(t *testing.T) {
	d := newDoor(t)
	e := &exchange{door: d, frames: frameReader{known: &d.limits}, ended: true}
	if err := e.answer(frameOf(t, goodFrame())); !errors.Is(err, io.EOF) ||
		d.node.Stats().Delivered.Load() != 0 {
		t.Errorf("ended with %v, %d items were delivered", err, d.node.Stats().Delivered.Load())
	}
}

// Promise: a peer that comes back is used again within moments.
func TestRestartedPeerIsFound(t *testing.T) {
	s := newStations(t, 2, five)
	key := rpctest.OwnKey(s[1].node, 0)
	if c := s[0].call(s[1].member, key, time.Minute); c.Err != nil {
		t.Fatal(c.Err)
	}
	s[1].doors[0].Stop()
	rpctest.Eventually(t, "calls fail",
		func() bool { return s[0].call(s[1].member, key, time.Minute).Err != nil })
	l, err := net.Listen("tcp", s[1].member.PeerAddr)
	if err != nil {
		t.Fatal(err)
	}
	door := NewServer(ServerConfig{Node: s[1].node, Cluster: testCluster, Clock: s[1].clock})
	s[1].doors = append(s[1].doors, door)
	go door.Serve(l)
	rpctest.Eventually(t, "the same boot is reached again",
		func() bool { return s[0].call(s[1].member, key, time.Minute).Err == nil })
}

// Promise: kill of a peer in flight: no request hangs past its deadline, each gets a decision, and
// every one that was not taken by the owner says so.
func TestKilledOwner(t *testing.T) {
	s := newStations(t, 2, tenThousand)
	key := rpctest.OwnKey(s[1].node, 0)
	var wg sync.WaitGroup
	var forwarded, degraded, held atomic.Int64
	stop := make(chan struct{})
	for range 32 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				const timeout = 2 * time.Second
				r := &cluster.Request{
					Deadline: s[0].clock.Now().Add(timeout), Items: []cluster.Item{
						{Limit: "big", Key: key, Cost: 1},
					},
				}
				out := make([]cluster.Decision, 1)
				err := s[0].node.Check(r, out)
				switch late := time.Duration(s[0].clock.Now() - r.Deadline); {
				// a timer may be late on a busy machine; a request that hangs is never answered
				case late > 10*time.Second:
					t.Errorf("answered %v after the deadline", late)
				case err != nil:
					t.Error(err)
				case out[0].Degraded:
					degraded.Add(1)
				case out[0].Source == cluster.SourceOwner: // it has taken over
					held.Add(1)
				default:
					forwarded.Add(1)
				}
			}
		})
	}
	rpctest.Eventually(t, "the owner is at work", func() bool { return forwarded.Load() > 500 })
	if n := held.Load(); n > 0 {
		t.Errorf("%d were decided here while the owner was at work", n)
	}
	s[1].doors[0].Stop()
	rpctest.Eventually(t, "this node decides alone",
		func() bool { return degraded.Load()+held.Load() > 500 })
	close(stop)
	wg.Wait()
}

// Promise: memory is bounded while a peer does not read, and calls say at once that nothing was
// sent.
func TestFullLineRefuses(t *testing.T) {
	s := newStations(t, 1)[0]
	l, err := net.Listen("tcp", "127.0.0.1:0") // a connection is taken, and nothing more: asks wait
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	silent := cluster.Member{ID: "n2", Boot: 2, PeerAddr: l.Addr().String()}
	deadline := s.clock.Now().Add(300 * time.Millisecond)
	ask := &cluster.Ask{Deadline: deadline}
	for range cluster.MaxItems {
		ask.Items = append(ask.Items,
			cluster.AskItem{Limit: rpctest.MustLimit(five), Key: strings.Repeat("k",
				cluster.MaxKey), Cost: 1})
	}
	calls := make([]cluster.Call, 20)
	for i := range calls {
		calls[i] = cluster.Call{To: silent, Ask: ask, Deadline: deadline}
	}
	s.peers.Call(calls)
	wantCall(t, calls[0], true, "deadline")
	wantCall(t, calls[len(calls)-1], true, "wait already for peer n2")
	if s.peers.Stats().Overflow.Load() == 0 || s.peers.Stats().Expired.Load() == 0 {
		t.Error("the calls were not counted")
	}
}

// A process that is dying takes a last connection on, drops it, and is gone: callers must hear that
// it is gone as soon as its machine says so, or its heirs would wait as long as for one that is
// only silent.
func TestDyingPeerIsGone(t *testing.T) {
	s := newStations(t, 1)[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := cluster.Member{ID: "n2", Boot: 2, PeerAddr: l.Addr().String(), State: cluster.StateActive}
	dropped := make(chan struct{})
	go func() {
		defer close(dropped)
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
		l.Close()
	}()
	if c := s.call(to, "key", 5*time.Second); c.Err == nil {
		t.Fatalf("nobody has answered %+v", c)
	}
	<-dropped
	rpctest.Eventually(t, "the peer is gone",
		func() bool { return errors.Is(s.call(to, "key", 5*time.Second).Err, cluster.ErrGone) })
}

// Promise: right answers again at p99 ≤ 250 ms after kill -9. A process that was good for long and
// is being killed takes a few connections on and drops them. A caller learns meanwhile that it is
// gone, and not that there is just no way: after that it would be left alone for a while.
func TestKilledPeerIsGoneAtOnce(t *testing.T) {
	s := newStations(t, 2)
	for round := range 5 {
		proxy, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // guards conns
		var conns []net.Conn
		ended := make(chan struct{})
		killed := make(chan struct{})
		go func() {
			defer close(ended)
			defer proxy.Close()
			for dropped := 0; dropped < 2; {
				c, err := proxy.Accept()
				if err != nil {
					return
				}
				select {
				case <-killed:
					c.Close()
					dropped++
					continue
				default:
				}
				up, err := net.Dial("tcp", s[1].member.PeerAddr)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				conns = append(conns, c, up)
				mu.Unlock()
				go io.Copy(c, up)
				go io.Copy(up, c)
			}
		}()
		to := s[1].member
		to.PeerAddr = proxy.Addr().String()
		if c := s[0].call(to, "key", 10*time.Second); c.Err != nil {
			t.Fatal(c.Err)
		}
		time.Sleep(retryMax + 50*time.Millisecond) // what makes it a good stream
		close(killed)
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		var last error
		for range 1000 {
			if last = s[0].call(to, "key", 10*time.Second).Err; !errors.Is(last,
				cluster.ErrBroken) {
				break
			}
		}
		if errors.Is(last, cluster.ErrGone) {
			proxy.Close()
			<-ended
			return
		}
		t.Logf("round %d: %v", round, last) // the machine may have been too busy
		proxy.Close()
		<-ended
	}
	t.Error("nobody hears that the peer is gone")
}

// Promise: a majority that was killed is known to be gone while the right of the rest lasts. A
// process that takes long to die drops connections until its machine refuses them: its peers go on
// trying meanwhile, more often than they try one that is just not there.
func TestPeerThatDiesSlowlyIsTriedAgain(t *testing.T) {
	s := newStations(t, 2)
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var died atomic.Pointer[time.Time]
	var dropped atomic.Int64 // later than dyingLasts
	kill := make(chan struct{})
	go func() {
		for {
			c, err := proxy.Accept()
			if err != nil {
				return
			}
			if at := died.Load(); at != nil {
				c.Close()
				if time.Since(*at) > dyingLasts+dyingPause {
					dropped.Add(1)
				}
				continue
			}
			up, err := net.Dial("tcp", s[1].member.PeerAddr)
			if err != nil {
				t.Error(err)
				return
			}
			go io.Copy(c, up)
			go io.Copy(up, c)
			context.AfterFunc(t.Context(), func() { up.Close() })
			go func() { <-kill; c.Close(); up.Close() }()
		}
	}()
	to := s[1].member
	to.PeerAddr = proxy.Addr().String()
	if c := s[0].call(to, "key", 10*time.Second); c.Err != nil {
		t.Fatal(c.Err)
	}
	now := time.Now()
	died.Store(&now)
	close(kill)
	time.Sleep(droppedLasts + 50*time.Millisecond)
	proxy.Close()
	// pauses that begin with retryMin and double make five attempts in that time, or fewer
	if n := dropped.Load(); n < 8 {
		t.Errorf("%d connections were tried late in %v, want 8 or more", n, droppedLasts)
	}
	rpctest.Eventually(t, "the peer is gone",
		func() bool { return errors.Is(s[0].call(to, "key", 5*time.Second).Err, cluster.ErrGone) })
}
