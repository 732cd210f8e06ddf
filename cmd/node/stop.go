package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/cluster"
	"penstock/rpc/admin"
)

// stop takes the node out: the others stop asking it, then the doors close, then it is gone. For
// grace it goes on answering, so that the others and load balancers notice; without grace there is
// no goodbye either, and to others it looks like a crash. ctx bounds the whole. Call it once.
func (r *running) stop(ctx context.Context, grace time.Duration) {
	goodbye := grace > 0 && r.gossip != nil
	r.draining.Store(true)
	r.leave()
	r.joining.Wait() // or it could enter the ring after having left it
	if goodbye {
		if err := r.gossip.SetState(cluster.StateLeaving); err != nil {
			r.log.Warn("leaving", "err", err)
		}
	}
	sleep(ctx, grace)
	if goodbye {
		r.handOver(ctx)
	}
	// Clients first: what they still have under way may need the peers.
	r.doors.close(ctx, func(o *openDoor) bool { return o.flag != "--peer" })
	if goodbye {
		r.sayAll(ctx)
		if err := r.gossip.Leave(leaveTimeout); err != nil {
			r.log.Warn("leaving", "err", err)
		}
	}
	if r.node != nil {
		// a door that is closed must not be taken for a process that is gone while it decides
		r.node.Membership().Close()
	}
	r.doors.close(ctx, func(o *openDoor) bool { return o.flag == "--peer" })
	if r.gossip != nil {
		r.gossip.Close()
	}
	for _, w := range r.files.watchers() {
		w.Close()
	}
	if r.node != nil {
		r.node.Stop()
		r.peers.Close()
	}
	r.tasks.Wait()
	r.spans.close(ctx)
	_ = r.files.audit.Close()
	if r.data != nil {
		if grace > 0 {
			if err := r.data.end(r.node, r.clock); err != nil {
				r.log.Error("the last counters are not saved; the file from before stays",
					"data-dir", r.data.path, "err", err)
			}
		}
		r.data.close()
	}
}

// drain hands over all that the node holds, as stop does, and lets it go on running: it is not
// ready, owns nothing, and asks the others about all that it is asked. It returns when that is
// done, or when ctx ends; what is begun goes on. There is no way back.
func (r *running) drain(ctx context.Context) error {
	if !r.isReady() {
		return cluster.ErrNoView
	}
	v := r.node.View()
	others := v.Active()
	if v.Me().Role == cluster.RoleMember && v.Me().State == cluster.StateActive {
		others--
	}
	if r.gossip == nil || others < 1 {
		return admin.ErrNobodyElse
	}
	if !r.draining.Swap(true) {
		r.log.Warn("draining: this node hands over what it holds, and goes on without it until " +
			"it is restarted")
	}
	if err := r.gossip.SetState(cluster.StateLeaving); err != nil {
		r.log.Warn("draining", "err", err)
	}
	for r.node.Held() > 0 {
		if r.node.View().Active() == 0 { // the others leave as well: somebody has to stay
			r.draining.Store(false)
			return errors.Join(admin.ErrNobodyElse, r.gossip.SetState(cluster.StateActive))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("drain: %d partitions are not handed over yet; that goes on: %w",
				r.node.Held(), context.DeadlineExceeded)
		}
		sleep(ctx, 10*time.Millisecond)
	}
	return nil
}

// warnOfRest says with what a node stops that could not hand everything over in time.
func (r *running) warnOfRest() {
	if c := r.node.Copies(); c.Held+c.Giving > 0 {
		r.log.Warn("leaving with partitions that nobody has taken over; their heirs go on "+
			"from their copies", "partitions", c.Held+c.Giving)
		return
	}
	r.log.Warn("leaving before the other members have agreed to it, or while they " +
		"need copies that " +
		"are kept here; they go on as soon as this node is gone")
}

// handOver waits until others hold everything that this node held.
func (r *running) handOver(ctx context.Context) {
	began := time.Now()
	for r.node.Held() > 0 && r.node.View().Active() > 0 {
		if ctx.Err() != nil || time.Since(began) > handOverTimeout {
			r.warnOfRest()
			r.node.Relinquish() // before the goodbye, on which they begin
			return
		}
		sleep(ctx, 10*time.Millisecond)
	}
}

// handOverTimeout is how long a node that leaves waits for the others to take over what it holds.
const handOverTimeout = 10 * time.Second

// sayAll waits until the others know what this node has told its clients, and have back what it has
// borrowed.
func (r *running) sayAll(ctx context.Context) {
	for began := time.Now(); r.node.PendingNotices() > 0 && r.node.View().Active() > 0; sleep(ctx,
		10*time.Millisecond) {
		if ctx.Err() != nil || time.Since(began) > sayAllTimeout {
			r.log.Warn("leaving with settlements that were not heard; what they are about is "+
				"charged in full", "settlements", r.node.PendingNotices())
			return
		}
	}
}

// sayAllTimeout is how long a node that leaves waits for that.
const sayAllTimeout = 2 * time.Second

// leaveTimeout bounds each message of the goodbye.
const leaveTimeout = time.Second

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
