package peer

import (
	"crypto/x509"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/rpc/rpctest"
)

// A certificate is good for the node that it names, in the role that it has.
func TestIdentity(t *testing.T) {
	for _, row := range []struct {
		uris          string
		dns           []string
		node          string
		member, agent bool // may be
	}{
		{"", []string{"n1"}, "n1", true, true},
		{"", []string{"n1", "localhost"}, "n2", false, false},
		{"", nil, "n1", false, false},
		{"", []string{"*"}, "n1", false, false},
		{"", []string{"*.penstock"}, "n1.penstock", false, false},
		{
			"penstock://node/n1 penstock://role/member",
			[]string{"localhost", "n2"},
			"n1", true,
			true,
		},
		{
			"penstock://node/n1 penstock://role/member",
			[]string{"localhost", "n2"},
			"n2", false,
			false,
		},
		{"penstock://node/n1 penstock://role/agent", nil, "n1", false, true},
		// no role that this release knows
		{"penstock://node/n1 penstock://role/other", nil, "n1", true, true},
		{"penstock://node/n* penstock://role/agent", nil, "n1", false, true},
		{"penstock://node/n*", nil, "n1", false, false},
		{"penstock://node/n* penstock://role/member", nil, "n1", false, false},
		{"penstock://node/* penstock://role/agent", nil, "n1", false, false},
		{"penstock://node/a%2Fb%20c penstock://role/member", nil, "a/b c", true, true},
		{"http://node/n1 penstock://role/member", nil, "n1", false, false},
	} {
		cert := &x509.Certificate{DNSNames: row.dns}
		for _, u := range strings.Fields(row.uris) {
			parsed, err := url.Parse(u)
			if err != nil {
				t.Fatal(err)
			}
			cert.URIs = append(cert.URIs, parsed)
		}
		id := identityOf(cert)
		for role, want := range map[cluster.Role]bool{
			cluster.RoleMember: row.member, cluster.RoleAgent: row.agent,
		} {
			if err := id.check(row.node, role); (err == nil) != want {
				t.Errorf("%q %q for the %s %q: %v", row.uris, row.dns, role, row.node, err)
			}
		}
	}
}

// as writes a certificate for a node in a role.
func as(a *rpctest.Authority, node string, role cluster.Role) {
	a.IssueFor(node, NodeURI(node), RoleURI(role))
}

// Promise: a certificate of the peers' authority opens no line under another node's name, in either
// direction.
func TestCertificateIsBoundToTheLine(t *testing.T) {
	a := rpctest.NewAuthority(t, "peers")
	as(a, "n1", cluster.RoleMember)
	as(a, "n2", cluster.RoleMember)
	as(a, "n3", cluster.RoleAgent)
	door := func(cert string) (*station, cluster.Member) {
		s := newStations(t, 1)[0]
		config := a.Config(cert)
		server := NewServer(ServerConfig{
			Node: s.node, Cluster: testCluster, Clock: s.clock, TLS: config,
		})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go server.Serve(l)
		t.Cleanup(server.Stop)
		m := s.member
		m.PeerAddr = l.Addr().String()
		return s, m
	}
	for _, row := range []struct {
		shows, says string // of the caller
		door        string // certificate of the door of n1
		role        cluster.Role
		want        string // in the error; empty: the call is answered
	}{
		{"n2", "n2", "n1", cluster.RoleMember, ""},
		{"n3", "n3", "n1", cluster.RoleMember, ""},
		{"n2", "n3", "n1", cluster.RoleMember, `for ["n2"] (member), and shown by the member "n3"`},
		{"n2", "n2", "n2", cluster.RoleMember, `for ["n2"] (member), and shown by the member "n1"`},
		{"n2", "n2", "n3", cluster.RoleMember, `for ["n3"] (agent), and shown by the member "n1"`},
	} {
		s, to := door(row.door)
		config := a.Config(row.shows)
		caller := NewLines(LinesConfig{
			ID: row.says, Boot: 99, Cluster: testCluster, Clock: s.clock, TLS: config,
		})
		deadline := s.clock.Now().Add(5 * time.Second)
		calls := []cluster.Call{
			{
				To: to, Deadline: deadline, Ask: &cluster.Ask{
					Hop: 1, Deadline: deadline, Move: &cluster.Move{From: 99, To: 1, ID: row.says},
				},
			},
		}
		caller.Call(calls)
		caller.Close()
		switch err := calls[0].Err; {
		case row.want == "" && err != nil:
			t.Errorf("%+v: %v", row, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%+v: %v", row, err)
		}
	}
}

// Promise: the node that has opened a stream speaks for itself alone. Asks under another name are
// refused, and so is a stream under another's boot.
func TestForgedSendersAreRefused(t *testing.T) {
	s := newStations(t, 2)
	me := greeting{testCluster, "n9", 9}
	stream := exchangeRaw(t, s[0], me.metadata())
	for _, m := range []*peerv1.Move{
		{From: 2, To: 1, Id: []byte("n2")},
		{From: 9, To: 1, Id: []byte("n2")},
		{From: 2, To: 1, Id: []byte("n9")},
	} {
		if err := stream.Send(&peerv1.Frame{Asks: []*peerv1.Ask{{Tag: 1, Hop: 1, Move: m}}}); err !=
			nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil || !strings.Contains(r.Answers[0].Error, "another sender") {
			t.Errorf("%v: %v, %v", m, r, err)
		}
	}
	_, err := exchangeRaw(t, s[0], greeting{testCluster, "n9", 2}.metadata()).Recv()
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(),
		`that of "n2"`) {
		t.Errorf("under the boot of n2: %v", err)
	}
}

// Promise: answers that wait are bounded in number and in bytes, per stream and in all.
func TestLateAnswersAreBounded(t *testing.T) {
	d := &peerDoor{}
	var streams []*exchange
	all := 0
	for range 2 * lateInAll {
		e := &exchange{door: d}
		streams = append(streams, e)
		n := 0
		for range 2 * relaysAtOnce {
			if e.enter(100, relaysAtOnce, relayBytes) {
				n++
			}
		}
		if all += n; n > relaysAtOnce || all > relaysAtOnce*lateInAll {
			t.Fatalf("%d wait in one stream, %d in all", n, all)
		}
	}
	if all != relaysAtOnce*lateInAll {
		t.Errorf("%d wait in all, want %d", all, relaysAtOnce*lateInAll)
	}
	for range relaysAtOnce {
		streams[0].leave(100)
	}
	if !streams[0].enter(relayBytes, relaysAtOnce, relayBytes) || streams[0].enter(1, relaysAtOnce,
		relayBytes) {
		t.Error("bytes are not bounded")
	}
}

// Promise: every refused node is told, and the log has few names of them.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	var turned turnedAway
	now := time.Now()
	logged := 0
	for range 10 * turnedMost {
		name := string(rune('a' + rand.IntN(20)))
		if turned.first(name, now) {
			logged++
		}
	}
	if logged != 20 || !turned.first("a", now.Add(turnedEvery)) {
		t.Errorf("%d of 20 names were logged", logged)
	}
	for i := range 10 * turnedMost {
		turned.first(strings.Repeat("x", i), now)
	}
	if len(turned.at) > turnedMost {
		t.Errorf("%d names are remembered", len(turned.at))
	}
}
