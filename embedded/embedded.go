// Package embedded runs a node of Penstock inside a Go program. Follow one Take:
//
//  1. The program asks its own node, by a function call. There is no socket between them.
//  2. If that node owns the key, it decides from memory. If another one does, it is asked, as
//     between any two nodes.
//
// Alone, the node is a limiter in the process. With Gossip and Join it is a member of a cluster of
// such programs and of penstock serve, and all of them keep the same limits together.
package embedded

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"penstock/cluster"
	"penstock/cluster/gossip"
	"penstock/limiter"
	"penstock/limiter/rules"
	"penstock/rpc/catalog"
	"penstock/rpc/client"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/peer"
)

// Node is a node that runs in this program. It is a client.Limiter.
type Node struct {
	clock  *clock.Clock
	node   *cluster.Node
	peers  *peer.Lines
	door   *door.Server   // for peers; nil if alone
	served chan struct{}  // closed when door has ended
	gossip *gossip.Gossip // nil if alone
	failed chan error     // see Failed
	once   sync.Once      // Close
	closed error          // what came of it

	catalog *catalog.Catalog   // of limits that are put at other nodes
	leaving context.Context    // ends with stop
	leave   context.CancelFunc // ends it
	tasks   sync.WaitGroup     // the catalog
}

var _ client.Limiter = (*Node)(nil)

// Start runs a node. It returns when the node can decide, and if Join is set, when it has joined.
// The caller must Close it.
func Start(ctx context.Context, c Config) (*Node, error) {
	limits, err := limitsOf(c.Limits)
	if err != nil {
		return nil, err
	}
	set, err := rules.New(c.Rules, limits)
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	member := cluster.Member{ID: c.Name, Boot: newBoot(), State: cluster.StateJoining}
	if c.Agent {
		member.Role = cluster.RoleAgent
	}
	clientTLS, serverTLS, err := c.PeerTLS.load(member.ID, member.Role)
	if err != nil {
		return nil, fmt.Errorf("embedded: PeerTLS: %w", err)
	}
	n := &Node{clock: clock.New(), failed: make(chan error, 1)}
	n.peers = peer.NewLines(peer.LinesConfig{
		ID: member.ID, Boot: member.Boot, Cluster: c.Cluster,
		Clock: n.clock, Renewed: clientTLS, Logger: c.Logger,
	})
	n.node, err = cluster.New(cluster.Config{
		ID: member.ID, Boot: member.Boot, Secret: newBoot(), Clock: n.clock, Network: n.peers,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: c.Memory, Seed: newBoot()}),
	})
	if err != nil {
		n.peers.Close()
		return nil, fmt.Errorf("embedded: %w", err)
	}
	if c.Gossip != "" && !c.Agent {
		n.node.Membership().Agree(cluster.Trust{Secret: cluster.Secret(newBoot())})
	}
	put := catalog.Config{Node: n.node, Network: n.peers, Logger: c.Logger}
	if n.catalog, err = catalog.New(put); err != nil {
		n.peers.Close()
		return nil, fmt.Errorf("embedded: %w", err)
	}
	n.leaving, n.leave = context.WithCancel(context.Background())
	n.tasks.Go(func() { n.catalog.Run(n.leaving) })
	n.node.SetLimits(limits)
	n.node.SetRules(set)
	n.node.Start()
	member.Limits = n.node.LimitsHash()
	if c.Gossip == "" {
		err = n.stayAlone(member)
	} else {
		err = n.join(ctx, &c, member, serverTLS)
	}
	if err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

// newBoot draws the id of this start. It is never 0.
func newBoot() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: it would end the process
	return binary.LittleEndian.Uint64(b[:]) | 1
}

func (n *Node) stayAlone(member cluster.Member) error {
	member.State = cluster.StateActive
	v, err := cluster.NewView(member.ID, []cluster.Member{member})
	if err == nil {
		n.node.SetView(v)
	}
	return err
}

// GossipAddr is the address that other nodes can join; empty if the node is alone.
func (n *Node) GossipAddr() string {
	if n.gossip == nil {
		return ""
	}
	return n.gossip.Addr()
}

// Members are the names of the nodes that own keys, as this one sees them.
func (n *Node) Members() (names []string) {
	for _, m := range n.node.View().Members {
		if m.State == cluster.StateActive && m.Role == cluster.RoleMember {
			names = append(names, m.ID)
		}
	}
	return names
}

// SetLimits replaces the limits. Counters stay as far as limits keep name, algorithm and period.
// The rules stay with the limits that they were made with: see SetRules.
func (n *Node) SetLimits(specs []limiter.Spec) error {
	limits, err := limitsOf(specs)
	if err != nil {
		return err
	}
	n.node.SetLimits(limits)
	return n.tellLimits()
}

// tellLimits tells the other nodes by which limits this one goes.
func (n *Node) tellLimits() error {
	if n.gossip == nil {
		return nil
	}
	return n.gossip.SetLimits(n.node.LimitsHash())
}

// SetRules replaces the rules. They name limits that the node has, and refer to these from now on.
func (n *Node) SetRules(list []rules.Rule) error {
	set, err := rules.New(list, n.node.Limits())
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	n.node.SetRules(set)
	return n.tellLimits()
}

// CheckRules charges cost units of every limit that the rules put a request under, or none: see
// client.Client.CheckRules.
func (n *Node) CheckRules(
	ctx context.Context, attributes map[string]string, cost int64,
) (client.Verdict, error) {
	if err := n.refuses(ctx); err != nil {
		return client.Verdict{}, err
	}
	request, m, err := n.node.Match(attributes, cost)
	if err != nil {
		return client.Verdict{}, told(err)
	}
	if t, limited := ctx.Deadline(); limited {
		request.Deadline = n.clock.At(t)
	}
	out := make([]cluster.Decision, len(request.Items))
	if len(out) > 0 {
		err = n.node.Check(request, out)
	}
	if err != nil {
		return client.Verdict{}, told(err)
	}
	sum := cluster.VerdictOf(out)
	v := client.Verdict{
		Allowed: sum.Allowed, RefusedBy: sum.RefusedBy, RetryAfter: sum.RetryAfter,
		Rules: m.Rules,
	}
	for i := range out {
		v.Decisions = append(v.Decisions, answer(&out[i]))
	}
	return v, nil
}

// limitsOf makes limits by their names, which are subject to the same rules as those in files.
func limitsOf(specs []limiter.Spec) (cluster.Limits, error) {
	limits := cluster.Limits{}
	for i, s := range specs {
		l, err := limiter.New(s)
		if err != nil {
			return nil, fmt.Errorf("embedded: limit %q: %w", s.Name, err)
		}
		if why := limiter.Taken(s.Name); why != "" {
			return nil, fmt.Errorf("embedded: limit %q: name: %s", s.Name, why)
		}
		if limits[s.Name] != nil {
			return nil, fmt.Errorf("embedded: limit %q: Limits[%d] has the name of an earlier one"+
				"; give each limit its own", s.Name, i)
		}
		limits[s.Name] = l
	}
	if err := cluster.CheckParents(nil, limits); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	return limits, nil
}

// Take charges key cost units of the named limit. A cost of 0 reports the state, a negative one
// refunds. It ends at the deadline of ctx, or after cluster.DefaultDeadline.
func (n *Node) Take(ctx context.Context, limit, key string, cost int64) (client.Decision, error) {
	return n.ask(ctx, cluster.Item{Limit: limit, Key: key, Cost: cost})
}

// Do is Take for a Request, which may also report, drain, state its time or bound its delay.
func (n *Node) Do(ctx context.Context, r client.Request) (client.Decision, error) {
	terms := cluster.Terms{Report: r.Report, Drain: r.Drain, Strict: r.Strict}
	if !r.At.IsZero() {
		ms := r.At.UnixMilli()
		if ms < 0 {
			return client.Decision{}, told(&cluster.InputError{
				Field:  "At",
				Reason: fmt.Sprintf("is %v; it cannot be before 1970", r.At),
			})
		}
		terms.Timed, terms.At = true, limiter.Millis(ms)
	}
	terms.Bounded, terms.MaxDelay = r.MaxDelay != 0, max(0, r.MaxDelay)
	return n.ask(ctx, cluster.Item{
		Limit: r.Limit, Key: r.Key, Plan: r.Plan, Cost: r.Cost, Terms: terms,
	})
}

// Peek answers as Take would, and changes nothing.
func (n *Node) Peek(ctx context.Context, limit, key string, cost int64) (client.Decision, error) {
	return n.ask(ctx, cluster.Item{Limit: limit, Key: key, Cost: cost, Op: cluster.OpPeek})
}

func (n *Node) ask(ctx context.Context, item cluster.Item) (client.Decision, error) {
	d, err := n.check(ctx, &item)
	if err != nil {
		return client.Decision{}, err
	}
	return answer(&d), nil
}

// check decides on the item, and sets its id if it gets one.
func (n *Node) check(ctx context.Context, item *cluster.Item) (cluster.Decision, error) {
	if err := n.refuses(ctx); err != nil {
		return cluster.Decision{}, err
	}
	request := cluster.Request{Items: []cluster.Item{*item}}
	if t, limited := ctx.Deadline(); limited {
		request.Deadline = n.clock.At(t)
	}
	var out [1]cluster.Decision
	err := n.node.Check(&request, out[:])
	if err != nil {
		return out[0], told(err)
	}
	item.ID = out[0].ID
	return out[0], nil
}

func answer(d *cluster.Decision) client.Decision {
	answer := client.Decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: d.Retry(),
		ResetAfter: d.ResetAfter, Delay: d.Delay,
		LimitName: d.Rule.Name, Owner: d.Owner, Source: d.Source.String(), Degraded: d.Degraded,
		Bound: d.Bound, Shadow: d.Shadow,
		Drained: d.Drained, Restarted: d.Restarted, Override: d.Rule.Override,
		Tag: d.Tag(), Tier: d.Tier(),
	}
	said := d.Said()
	answer.Denial = client.Denial{
		Status: said.Status, ContentType: said.ContentType, Body: said.Body,
	}
	if d.Session != 0 {
		answer.Session = time.UnixMilli(int64(d.Session))
	}
	return answer
}
