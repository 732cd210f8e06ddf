package embedded_test

import (
	"errors"
	"strings"
	"testing"

	"penstock/cluster/gossip"
	"penstock/embedded"
	"penstock/limiter"
)

// Promise: to Close a node again changes nothing. A closed node admits nothing: what its cluster
// has counted it does not know any more.
func TestCloseTwice(t *testing.T) {
	for _, c := range []embedded.Config{{}, {Gossip: "127.0.0.1:0"}} {
		c.Name, c.Memory, c.Limits = "n1", 1<<20, []limiter.Spec{login}
		n := start(t, c)
		first, again := n.Close(patience(t)), make(chan error, 1)
		go func() { again <- n.Close(patience(t)) }()
		select {
		case err := <-again:
			if first != nil || err != nil {
				t.Errorf("%v, and then %v", first, err)
			}
		case <-patience(t).Done():
			t.Fatal("the second Close does not return")
		}
		d, err := n.Take(patience(t), "login", "alice", 1)
		if codeOf(err) != "Canceled" || !strings.Contains(err.Error(), "the node is closed") {
			t.Errorf("after Close: %+v, %v, of code %s", d, err, codeOf(err))
		}
	}
}

// Promise: of two nodes with one name, which may both have begun without the other one, one
// decides; the program with the other one hears that.
func TestNameOfAnotherNode(t *testing.T) {
	c := embedded.Config{
		Name: "n1", Gossip: "127.0.0.1:0", Cluster: t.Name(), Limits: []limiter.Spec{login},
		Memory: 1 << 20,
	}
	first, second := start(t, c), start(t, c)
	defer first.Close(patience(t))
	defer second.Close(patience(t))
	c.Name, c.Agent, c.Join = "agent", true, []string{first.GossipAddr(), second.GossipAddr()}
	agent := start(t, c) // by which they meet
	defer agent.Close(patience(t))
	select {
	case err := <-second.Failed():
		if !errors.Is(err, gossip.ErrNameTaken) {
			t.Errorf("%v, want ErrNameTaken", err)
		}
	case err := <-first.Failed():
		t.Errorf("the earlier one is to stop: %v", err)
	case <-patience(t).Done():
		t.Error("nobody hears of it")
	}

	c.Name, c.Agent, c.Join = "n1", false, []string{first.GossipAddr()}
	if n, err := embedded.Start(patience(t), c); err == nil {
		n.Close(patience(t))
		t.Error("a third node of that name starts")
	} else if !errors.Is(err, gossip.ErrNameTaken) || strings.Contains(err.Error(), "no seed") {
		t.Errorf("%v; want an error about the name", err)
	}
}

// Promise: nodes show each other certificates, or nobody does: half of the files would open the
// door to anybody.
func TestPeerTLSIsWhole(t *testing.T) {
	for _, p := range []embedded.PeerTLS{
		{Cert: "cert.pem", Key: "key.pem"}, {CA: "ca.pem"}, {Cert: "cert.pem", CA: "ca.pem"},
	} {
		c := embedded.Config{
			Gossip: "192.0.2.1:0", GossipKeys: [][]byte{make([]byte, 32)}, PeerTLS: p,
		}
		if _, err := embedded.Start(patience(t), c); err == nil ||
			!strings.Contains(err.Error(), "PeerTLS: one of Cert, Key and CA is missing") {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
