package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"penstock/cluster"
	"penstock/cluster/gossip"
)

// join makes the node part of its cluster: at once if it is alone, else as soon as a seed answers.
func (r *running) join(ctx context.Context, d doors) error {
	if d.gossip.off() {
		r.member.State = cluster.StateActive
		view, err := cluster.NewView(r.member.ID, []cluster.Member{r.member})
		if err != nil {
			return err
		}
		r.mayDecide()
		r.node.SetView(view)
		r.announce()
		return nil
	}
	s := &r.settings
	r.member.Limits = r.node.LimitsHash()
	keys, err := r.files.readGossipKeys()
	if err != nil {
		return err
	}
	if len(s.Join) == 0 {
		r.member.State = cluster.StateActive
	}
	g, err := gossip.Start(ctx, gossip.Config{
		Member: r.member, Started: r.started, Version: version(),
		Bind: d.gossip.address, Advertise: s.Advertise, Cluster: s.Cluster, Keys: keys,
		Allow: s.GossipAllow, Join: s.Join, Refused: &r.refused,
		OnView:     r.see,
		OnContest:  r.node.Relinquish,
		OnConflict: r.fail,
		Agreed:     r.node.Membership().Has,
		Answers:    r.peers.Answers,
		Logger:     r.log,
		Timing:     s.timing,
	})
	// memberlist does not wrap it
	if err != nil && strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		return &inUseError{d.gossip}
	}
	if err != nil {
		return s.gossipError(err)
	}
	r.gossip = g
	r.files.keys.use(g)
	r.roster.tellLimitsTo(g)
	r.joining.Go(r.becomeActive)
	return nil
}

// mayDecide notes that the node may decide from now on.
func (r *running) mayDecide() {
	if r.data != nil {
		r.data.begin()
	}
}

// gossipError names the flag that gossip could not start with.
func (s *settings) gossipError(err error) error {
	words := strings.TrimPrefix(err.Error(), "gossip: ")
	switch {
	case strings.HasPrefix(words, "seed "):
		return errors.New("--join: " + words)
	case strings.Contains(words, " to advertise: "):
		return errors.New("--advertise: " + words)
	}
	return fmt.Errorf("--gossip %s: %w", s.Gossip, err)
}

// see is the function that gossip calls with every new View.
//
// A node that is leaving stays an owner in its own view until its doors close. The others hear of
// it one after the other, within some tenths of a second. A node that has not heard yet still asks
// this node. If it refused, no node would decide: the others are not yet owners of its keys in
// their views.
func (r *running) see(v *cluster.View) {
	names := make([]string, len(v.Members))
	for i, m := range v.Members {
		names[i] = m.ID + " " + m.State.String()
	}
	r.log.Info("members", "members", names, "ring", fmt.Sprintf("%016x", v.RingHash()))
	logFailures(r.log, r.roster.failures.see(r.roster.failures.now(), v))
	r.peers.Keep(v.Members)
	r.mayDecide()
	r.node.SetView(v)
	r.roster.failures.struckOff(r.roster.failures.now(), r.node.View())
	r.catalog.Seen()
	r.history.Seen(v)
	r.roster.compareLimits(v)
}

// becomeActive waits for the cluster, however long that takes, and enters the ring.
func (r *running) becomeActive() {
	for {
		patience, cancel := context.WithTimeout(r.leaving, joinReminder)
		err := r.gossip.Wait(patience)
		cancel()
		if r.leaving.Err() != nil {
			return
		}
		if err == nil {
			break
		}
		if errors.Is(err, gossip.ErrNameTaken) {
			r.log.Warn("another node of this name is leaving, or silent; waiting until it "+
				"is gone", "err", err)
			continue
		}
		r.log.Warn("no seed has answered yet; still trying", "join", r.settings.Join, "err", err)
	}
	r.catchLimits()
	if r.member.Role == cluster.RoleMember && !r.enter() {
		return
	}
	if err := r.gossip.SetState(cluster.StateActive); err != nil {
		r.log.Warn("in the ring, but the others may not have heard of it yet", "err", err)
	}
	r.announce()
}

// catchLimits has the node know the limits that were put before it is ready.
func (r *running) catchLimits() {
	patience, cancel := context.WithTimeout(r.leaving, catchTimeout)
	defer cancel()
	r.catalog.Catch(patience)
	r.node.AwaitLimits(false)
}

// enter founds a cluster, or has its members admit this node, and returns as soon as it decides;
// false if it is leaving before.
func (r *running) enter() bool {
	for {
		patience, cancel := context.WithTimeout(r.leaving, joinReminder)
		err := r.gossip.Enter(patience, r.node, r.settings.Expect)
		cancel()
		if err == nil || r.leaving.Err() != nil {
			return err == nil
		}
		r.log.Warn("still trying", "err", err)
	}
}

// catchTimeout bounds how long a node that joins waits for the limits that were put: it gets them
// later too.
const catchTimeout = 2 * time.Second

// joinReminder is how often a node that reaches nobody says so.
const joinReminder = 30 * time.Second

// announce logs where the node is to be found.
func (r *running) announce() {
	where := []any{
		"name", r.member.ID, "cluster", r.settings.Cluster, "role",
		r.member.Role.String(),
	}
	if r.gossip != nil {
		where = append(where, "gossip", r.gossip.Addr(), "peer", r.member.PeerAddr)
	}
	for _, o := range r.doors.list {
		if o.flag != "--peer" {
			where = append(where, o.flag[2:], reachable(o.listener, r.doors.host))
		}
	}
	r.log.Info("ready", where...)
	close(r.ready)
}
