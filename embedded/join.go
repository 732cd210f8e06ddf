package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"penstock/cluster"
	"penstock/cluster/gossip"
	"penstock/rpc/peer"
)

// This file has how a node enters its cluster, and how it leaves.

// join opens the door for peers, finds the other nodes, and enters the ring.
func (n *Node) join(ctx context.Context, c *Config, member cluster.Member, t *tls.Config) error {
	l, err := net.Listen("tcp", c.Peer)
	if err != nil {
		return fmt.Errorf("embedded: Peer: %w", err)
	}
	member.PeerAddr = l.Addr().String()
	if c.Advertise != "" {
		_, port, _ := net.SplitHostPort(member.PeerAddr)
		member.PeerAddr = net.JoinHostPort(c.Advertise, port)
	}
	if len(c.Join) == 0 {
		member.State = cluster.StateActive
	}
	n.door = peer.NewServer(peer.ServerConfig{
		Node: n.node, Cluster: c.Cluster, Clock: n.clock, TLS: t, Catalog: n.catalog,
	})
	n.served = make(chan struct{})
	go func() {
		defer close(n.served)
		if err := n.door.Serve(l); err != nil && n.leaving.Err() == nil {
			n.fail(fmt.Errorf("embedded: Peer %s: %w", l.Addr(), err))
		}
	}()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	n.gossip, err = gossip.Start(ctx, gossip.Config{
		Member: member, Bind: c.Gossip, Advertise: c.Advertise, Cluster: c.Cluster,
		Keys: c.GossipKeys, Join: c.Join, Logger: c.Logger,
		OnView: func(v *cluster.View) {
			n.peers.Keep(v.Members)
			n.node.SetView(v)
			n.catalog.Seen()
		},
		OnContest: n.node.Relinquish,
		OnConflict: func(err error) {
			n.fail(err)
			stop(err)
		},
		Agreed:  n.node.Membership().Has,
		Answers: n.peers.Answers,
	})
	if err != nil {
		return fmt.Errorf("embedded: Gossip: %w", err)
	}
	if err := n.enter(ctx, c.Agent); err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, gossip.ErrNameTaken) {
			err = fmt.Errorf("embedded: Name: %w", cause)
		}
		return err
	}
	if err := n.gossip.SetState(cluster.StateActive); err != nil {
		c.Logger.Warn("in the ring, but the others may not have heard of it yet", "err", err)
	}
	return nil
}

// enter waits until the node has reached its cluster, and until it is in the ring if it owns keys.
func (n *Node) enter(ctx context.Context, agent bool) error {
	if err := n.gossip.Wait(ctx); err != nil {
		return fmt.Errorf("embedded: Join: no seed has answered: %w", err)
	}
	if agent {
		return nil
	}
	if err := n.gossip.Enter(ctx, n.node, 0); err != nil {
		return fmt.Errorf("embedded: Join: %w", err)
	}
	return nil
}

// Failed gets the reason, at most once, if this node cannot go on: another node of the cluster has
// its name, or its door for other nodes has failed. From then on it owns no keys, or other nodes do
// not reach it; the program should Close it.
func (n *Node) Failed() <-chan error { return n.failed }

// fail notes why the node cannot go on. Only the first reason counts.
func (n *Node) fail(err error) {
	select {
	case n.failed <- err:
	default:
	}
}

// Close takes the node out of its cluster: other nodes take over its counters and receive its open
// settlements, then it stops. ctx bounds that. Counters not taken over by then continue from
// copies; leases not settled are charged in full. A closed node answers CANCELED. To Close it again
// changes nothing.
func (n *Node) Close(ctx context.Context) error {
	n.once.Do(func() { n.closed = n.close(ctx) })
	return n.closed
}

func (n *Node) close(ctx context.Context) error {
	var err error
	if n.gossip != nil {
		err = n.gossip.SetState(cluster.StateLeaving)
		for n.node.Held()+n.node.PendingNotices() > 0 && n.node.View().Active() > 0 &&
			ctx.Err() == nil {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		n.node.Relinquish() // keys that no node has taken over; their heirs continue at the goodbye
		err = errors.Join(err, n.gossip.Leave(goodbye))
	}
	n.stop()
	return err
}

// goodbye bounds each message of it. On a machine without free processors a second was too little.
const goodbye = 3 * time.Second

// stop stops everything, at once.
func (n *Node) stop() {
	n.leave()
	n.tasks.Wait()
	n.node.Membership().Close()
	if n.door != nil {
		n.door.Stop()
		<-n.served
	}
	if n.gossip != nil {
		n.gossip.Close()
	}
	n.node.Stop()
	n.peers.Close()
}
