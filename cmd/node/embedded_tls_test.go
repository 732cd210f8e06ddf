package main

import (
	"strings"
	"testing"

	"penstock/cluster"
	"penstock/embedded"
	"penstock/rpc/peer"
	"penstock/rpc/rpctest"
)

// Promise: an embedded node with a certificate that the other nodes would refuse does not start.
func TestEmbeddedNodeOfAnotherAuthority(t *testing.T) {
	ours, theirs := rpctest.NewAuthority(t, "ours"), rpctest.NewAuthority(t, "theirs")
	theirs.IssueFor("n1", peer.NodeURI("n1"), peer.RoleURI(cluster.RoleMember))
	c := embedded.Config{
		Name: "n1", Gossip: "127.0.0.1:0", Memory: 1 << 20,
		PeerTLS: embedded.PeerTLS{
			Cert: theirs.Path("n1.pem"), Key: theirs.Path("n1.key"), CA: ours.Path("ca.pem"),
		},
	}
	n, err := embedded.Start(rpctest.Patience(t), c)
	if err == nil {
		n.Close(rpctest.Patience(t))
	}
	if err == nil || !strings.Contains(err.Error(), "other nodes would refuse it") {
		t.Errorf("%v, want an error about the authority", err)
	}
	c.PeerTLS.CA = theirs.Path("ca.pem")
	if n, err = embedded.Start(rpctest.Patience(t), c); err != nil {
		t.Fatal(err)
	}
	n.Close(rpctest.Patience(t))
}
