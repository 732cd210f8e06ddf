package peer

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/cluster/ownership"
	peerv1 "penstock/proto/penstock/peer/v1"
)

// Promise: a door takes words from the node that has opened the stream, and in its name alone.
func TestForgedWordsAreRefused(t *testing.T) {
	s := newStations(t, 1)[0]
	stream := exchangeRaw(t, s, greeting{testCluster, "n9", 9}.metadata())
	for want, w := range map[string]*peerv1.Words{
		"":               theirWords(&peerv1.Said{Kind: uint32(saidVote), Boot: 9}),
		"another sender": {From: 8, Id: []byte("n9"), Process: 8},
		"only that node": theirWords(&peerv1.Said{
			Kind: uint32(saidJoin), Member: &peerv1.Member{Id: []byte("n8"), Boot: 9},
		}),
	} {
		f := &peerv1.Frame{Asks: []*peerv1.Ask{{Tag: 1, Hop: 1, Words: w}}}
		if err := stream.Send(f); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Answers[0].Error; !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%v is answered with %q, want %q", w, got, want)
		}
	}
}

// echo is a peer that answers each ask with the same words.
type echo struct {
	peerv1.UnimplementedPeerServer
	me    greeting
	words *peerv1.Words
	// it says that it passes on what another node says
	passes bool
}

func (e *echo) Exchange(stream peerv1.Peer_ExchangeServer) error {
	stream.SendHeader(e.me.metadata())
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, a := range f.Asks {
			stream.Send(&peerv1.Reply{Answers: []*peerv1.Answer{{
				Tag: a.Tag, Words: e.words, Passed: e.passes,
			}}})
		}
	}
}

// callWords says something to a peer.
func callWords(s *station, to cluster.Member) cluster.Call { return callWordsFor(s, to, 0) }

// callWordsFor says something to a peer, or by way of it to the node of a boot.
func callWordsFor(s *station, to cluster.Member, boot uint64) cluster.Call {
	until := s.clock.Now().Add(5 * time.Second)
	w := wordsOf(ownership.Release{})
	w.ID, w.From, w.Process = s.member.ID, ownership.Boot(s.member.Boot), s.member.Boot
	ask := &cluster.Ask{Hop: 1, Deadline: until, Words: w, For: boot}
	calls := []cluster.Call{{To: to, Deadline: until, Once: true, Ask: ask}}
	s.peers.Call(calls)
	return calls[0]
}

// Promise: an answer is taken from the node that has greeted, and in its name alone. What it was
// asked to pass on it answers in the name of the node that this was for.
func TestForgedAnswersAreRefused(t *testing.T) {
	s := newStations(t, 1)[0]
	mine := theirWords(&peerv1.Said{Kind: uint32(saidVote), Boot: 9})
	others := &peerv1.Words{From: 8, Id: []byte("n8"), Process: 8}
	for _, row := range []struct {
		want   string
		words  *peerv1.Words
		passes bool
		boot   uint64 // that the ask is for; 0: the peer
	}{
		{words: mine},
		{words: others, want: "another sender"},
		{words: others, passes: true, boot: 8},
		{words: others, passes: true, boot: 7, want: "another sender"},
		{words: others, boot: 8, want: "another sender"},
		{words: others, passes: true, want: "nobody has asked it to"},
	} {
		to := servePeer(t, &echo{
			me: greeting{testCluster, "n9", 9}, words: row.words, passes: row.passes,
		})
		to.ID, to.Boot = "n9", 9
		switch c := callWordsFor(s, to, row.boot); {
		case row.want == "" && (c.Err != nil || c.Answer.Words == nil ||
			c.Answer.Passed != row.passes || uint64(c.Answer.Words.From) != row.words.From):
			t.Errorf("%+v: %+v, %v", row, c.Answer, c.Err)
		case row.want != "" && (c.Err == nil || !strings.Contains(c.Err.Error(), row.want)):
			t.Errorf("%+v: %v, want %q", row, c.Err, row.want)
		}
	}
}

// Promise: a door passes on, and takes in what is passed on, from members alone, and nobody asks
// for keys that way. That gossip names a node makes it no member.
func TestStrangersPassNothingOn(t *testing.T) {
	s := newStations(t, 2)[0]
	for _, from := range []greeting{{testCluster, "n9", 9}, {testCluster, "n2", 2}} {
		t.Run(from.node, func(t *testing.T) { wantNothingPassedOn(t, s, from) })
	}
}

func wantNothingPassedOn(t *testing.T, s *station, from greeting) {
	stream := exchangeRaw(t, s, from.metadata())
	for _, boot := range []uint64{s.member.Boot, 77} {
		w := &peerv1.Words{From: from.boot, Id: []byte(from.node), Process: from.boot}
		f := &peerv1.Frame{Asks: []*peerv1.Ask{{Tag: 1, Hop: 1, Words: w, For: boot}}}
		if err := stream.Send(f); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Answers[0].Error; !strings.Contains(got, "for another node") {
			t.Errorf("an ask for boot %d is answered with %q", boot, got)
		}
	}
}

// Promise: a member says to one that is to pass it on what it says itself, and passes on to others
// what a third one says.
func TestPassedOnIsTakenFromMembers(t *testing.T) {
	s := newStations(t, 1)[0]
	e := &exchange{door: &peerDoor{node: s.node}, peer: greeting{testCluster, "n9", 9}}
	mine, theirs := cluster.Move{ID: "n9", From: 9}, cluster.Move{ID: "n8", From: 8}
	words := cluster.Words{ID: "n8", From: 8, Process: 8}
	other, own := uint64(77), s.member.Boot
	for _, row := range []struct {
		ask  cluster.Ask
		want string
	}{
		{cluster.Ask{Hop: 1, For: other, Move: &mine}, ""},
		{cluster.Ask{Hop: 1, For: other, Move: &theirs}, "another sender"},
		{cluster.Ask{Hop: 1, For: other, Words: &words}, "another sender"},
		{cluster.Ask{Hop: 2, For: other, Move: &theirs}, ""},
		{cluster.Ask{Hop: 2, For: other, Words: &words}, ""},
		{cluster.Ask{Hop: 3, For: own, Move: &theirs}, ""},
		{cluster.Ask{Hop: 2, Move: &theirs}, "another sender"},
		{cluster.Ask{Hop: 2, For: other, Items: make([]cluster.AskItem, 1)}, "asks for keys"},
	} {
		if got := e.forgedBy(true, &row.ask); !strings.Contains(got, row.want) ||
			row.want == "" && got != "" {
			t.Errorf("%+v: %q, want %q", row.ask, got, row.want)
		}
		if got := e.forgedBy(false, &row.ask); row.ask.For != 0 && got == "" {
			t.Errorf("%+v: a stranger passes it on", row.ask)
		}
	}
}

// Promise: a node of a boot, or even id, that nobody knows yet can be asked at its address; a boot
// or an id that is named must be the one that answers.
func TestCallsToAnAddress(t *testing.T) {
	s := newStations(t, 1)[0]
	words := theirWords(&peerv1.Said{Kind: uint32(saidVote), Boot: 9})
	to := servePeer(t, &echo{me: greeting{testCluster, "n9", 9}, words: words})
	for _, row := range []struct {
		id   string
		boot uint64
		met  bool
	}{{"n9", 9, true}, {"n9", 0, true}, {"", 0, true}, {"n8", 0, false}, {"n9", 8, false}} {
		to.ID, to.Boot = row.id, row.boot
		c := callWords(s, to)
		if row.met && c.Err != nil || !row.met && !errors.Is(c.Err, cluster.ErrGone) {
			t.Errorf("%+v: %v", row, c.Err)
		}
	}
}

// servePeer serves a peer of a test, and returns where.
func servePeer(t *testing.T, p peerv1.PeerServer) cluster.Member {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	peerv1.RegisterPeerServer(s, p)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return cluster.Member{PeerAddr: l.Addr().String()}
}

// older is a peer of an earlier release: it refuses, with its own words.
type older struct{ peerv1.UnimplementedPeerServer }

func (older) Exchange(peerv1.Peer_ExchangeServer) error {
	return status.Error(codes.FailedPrecondition, "node n9 speaks protocol 1 of penstock.peer, "+
		"the caller \"2\"; run the same release on all nodes")
}

// Promise: nodes of two protocols refuse each other, and both ends say what to do.
func TestAnotherProtocolIsExplained(t *testing.T) {
	s := newStations(t, 1)[0]
	to := servePeer(t, older{})
	to.ID, to.Boot = "n9", 9
	if c := callWords(s, to); c.Err == nil || strings.Count(c.Err.Error(), "--data-dir") != 1 {
		t.Errorf("an older peer: %v", c.Err)
	}
	md := metadata.Pairs(clusterKey, testCluster, nodeKey, "n9", bootKey, "9", protocolKey, "1")
	_, err := exchangeRaw(t, s, md).Recv()
	if err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("an older caller: %v", err)
	}
}
