package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"penstock/cluster"
	"penstock/cluster/gossip"
	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/rpc"
	"penstock/rpc/catalog"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/envoy"
	"penstock/rpc/history"
	"penstock/rpc/overview"
	"penstock/rpc/peer"
)

// running is one node with everything around it, from start, which lists the steps, to stop
// (stop.go). Any number of them live in one process.
type running struct {
	settings settings
	log      *slog.Logger
	member   cluster.Member // this node as others see it
	doors    openDoors
	clock    *clock.Clock
	node     *cluster.Node
	peers    *peer.Lines
	gossip   *gossip.Gossip // nil if --gossip is off
	refused  gossip.Refused // at its address
	envoy    *envoy.Door
	spans    spans
	metrics  *door.Metrics
	files    files
	data     *dataDir         // nil without --data-dir
	catalog  *catalog.Catalog // of limits that are put
	history  *history.Recorder
	page     *overview.Overview
	roster   roster
	started  time.Time
	lifetime
}

// lifetime is how far a node is between its start and its stop.
type lifetime struct {
	ready    chan struct{} // closed when the node is in the ring, or knows one if it is an agent
	failed   chan error    // gets the first error that ends a node at work
	draining atomic.Bool   // /readyz says no

	leave   context.CancelFunc // ends the wait for the cluster
	leaving context.Context
	joining sync.WaitGroup // becomeActive
	tasks   sync.WaitGroup // the doors, and what goes on until the node leaves
}

// start makes a node of s that answers when start returns, though perhaps not ready yet: see ready.
// The caller must stop what it gets.
func start(ctx context.Context, s settings, log *slog.Logger) (*running, error) {
	d, err := s.check()
	if err != nil {
		return nil, err
	}
	r := &running{settings: s, log: log, started: time.Now()}
	r.ready, r.failed = make(chan struct{}), make(chan error, 1)
	r.leaving, r.leave = context.WithCancel(context.Background())
	r.files.settings, r.files.log, r.files.began = &r.settings, log, r.started
	r.warn(d)
	for _, step := range []func(context.Context, doors) error{
		r.open, r.makeNode, r.recall, r.makeDoors, r.readLimits, r.serve, r.join,
	} {
		if err := step(ctx, d); err != nil {
			r.crash()
			return nil, err
		}
	}
	return r, nil
}

// warn says once and loudly which settings are probably a mistake.
func (r *running) warn(d doors) {
	warnIfShared(r.log, "--tls-key", r.settings.TLSKey, true)
	warnIfShared(r.log, "--peer-tls-key", r.settings.PeerTLSKey, true)
	if exposed := r.settings.exposed(d); len(exposed) > 0 {
		r.log.Warn("INSECURE: other machines can reach and use this node", "missing", exposed)
	}
}

func (r *running) open(_ context.Context, d doors) error {
	err := r.doors.open(d)
	if err == nil {
		r.doors.keep(&r.settings, r.log)
	}
	return err
}

// makeNode makes the node and its hands.
func (r *running) makeNode(_ context.Context, d doors) error {
	s := &r.settings
	r.member = cluster.Member{ID: s.Name, Boot: newBoot(), State: cluster.StateJoining}
	if s.Role == cluster.RoleAgent.String() {
		r.member.Role = cluster.RoleAgent
	}
	if err := r.advertise(d); err != nil {
		return err
	}

	var peerTLS func() *tls.Config
	var err error
	if s.PeerTLSCert != "" {
		now, err := r.peerFiles().Caller()
		if err != nil {
			return fmt.Errorf("--peer-tls-cert: %w", err)
		}
		peerTLS = func() *tls.Config { return rpc.PeerTLS(now()) }
	}
	if r.spans, err = s.spans(s.Name, r.log); err != nil {
		return err
	}
	r.clock = clock.New()
	r.peers = peer.NewLines(peer.LinesConfig{
		ID: r.member.ID, Boot: r.member.Boot, Cluster: s.Cluster, Clock: r.clock,
		Renewed: peerTLS, Logger: r.log, Trace: r.spans.peer(),
	})
	r.node, err = cluster.New(cluster.Config{
		ID: r.member.ID, Boot: r.member.Boot, Secret: newBoot(), Clock: r.clock, Network: r.peers,
		Table:  limiter.NewTable(limiter.TableConfig{Bytes: int64(s.Memory), Seed: newBoot()}),
		OnIdle: s.onIdle,
	})
	if err != nil {
		return err
	}
	if r.member.Role == cluster.RoleMember && !d.gossip.off() {
		r.node.Membership().Agree(s.trust())
	}
	r.roster.node, r.roster.boot, r.roster.log = r.node, r.member.Boot, r.log
	return nil
}

// recall has the node know what was kept from before, and keep what comes: counters, limits that
// are put, and an hour of counts and events. Then it begins to work.
func (r *running) recall(context.Context, doors) (err error) {
	s := &r.settings
	put := catalog.Config{Node: r.node, Network: r.peers, Logger: r.log}
	if s.DataDir != "" {
		if r.data, err = openDataDir(s.DataDir, s.Cluster, r.log); err != nil {
			return err
		}
		if err := r.data.restore(r.node); err != nil {
			return err
		}
		r.tasks.Go(func() { r.data.keepSaving(r.leaving, r.node, r.clock) })
		put.File = filepath.Join(r.data.path, catalogFile)
	}
	if r.catalog, err = catalog.New(put); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	r.tasks.Go(func() { r.catalog.Run(r.leaving) })
	r.history = history.NewRecorder(r.node, r.clock.Now(), time.Now)
	r.tasks.Go(func() { r.history.Run(r.leaving) })
	r.page = overview.New(overview.Config{
		Node: r.node, Recorder: r.history, Network: r.peers, Roster: &r.roster,
		Started: r.started, Ended: r.leaving.Done(), Logger: r.log,
	})
	r.node.AwaitLimits(len(s.Join) > 0)
	r.node.Start()
	r.tasks.Go(r.watchRefused)
	r.tasks.Go(r.watchLost)
	return nil
}

// advertise finds the addresses by which others reach this node.
func (r *running) advertise(d doors) (err error) {
	s, m := &r.settings, &r.member
	if r.doors.host = s.Advertise; r.doors.host == "" {
		r.doors.host, err = ownAddress()
		if err != nil && (d.gossip.everywhere() || d.peer.everywhere()) {
			return err
		}
	}
	m.PeerAddr = r.doors.address("--peer")
	if s.Advertise != "" && m.PeerAddr != "" {
		_, port, _ := net.SplitHostPort(m.PeerAddr)
		m.PeerAddr = net.JoinHostPort(s.Advertise, port)
	}
	if d.gossip.everywhere() {
		s.Advertise = r.doors.host
	}
	m.GRPCAddr, m.HTTPAddr = r.doors.address("--grpc"), r.doors.address("--http")
	return nil
}

// newBoot draws what tells this start from all others.
func newBoot() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails: it would end the process
		if boot := binary.LittleEndian.Uint64(b[:]); boot != 0 {
			return boot
		}
	}
}

// clientTLS is what the doors for clients show; nil without --tls-cert.
func (r *running) clientTLS() (*tls.Config, error) {
	s := &r.settings
	if s.TLSCert == "" {
		return nil, nil
	}
	c, err := r.doorFiles().Server()
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	return c, nil
}

// readLimits loads the named limits and goes on watching them.
func (r *running) readLimits(context.Context, doors) error {
	s := &r.settings
	r.node.SetLimits(s.named)
	r.node.SetRules(s.ruled)
	var err error
	if s.EnvoyConfig != "" {
		before := ""
		if r.files.envoys, err = policy.WatchEnvoy(s.EnvoyConfig, r.log, func(e *policy.Envoy) {
			r.envoy.Set(e)
			r.files.lookAtRoles()
			now := fmt.Sprintf("%d limits, hash %s", len(e.Rules()), e.Hash())
			r.files.recordReload("load Envoy limits", s.EnvoyConfig, before, now)
			before = now
		}); err != nil {
			return fmt.Errorf("--envoy-config: %w", err)
		}
	}
	if s.Limits == "" {
		if len(s.named) == 0 && s.EnvoyConfig == "" {
			r.log.Info("no --limits: this node knows only limits that come with a request")
		}
		return nil
	}
	hash := func() string { return fmt.Sprintf("%016x", r.node.LimitsHash()) }
	r.files.limits, err = policy.Watch(s.Limits, r.log, func(set *policy.Set) {
		before := hash()
		r.node.SetLimits(set.Limits)
		r.node.SetRules(set.Rules)
		r.roster.tellLimits()
		r.files.lookAtRoles()
		r.files.recordReload("load limits", s.Limits, before, hash())
	})
	if err != nil {
		return fmt.Errorf("--limits: %w", err)
	}
	return nil
}

// serve opens the doors. Until the node has joined its cluster, its answers say so.
func (r *running) serve(context.Context, doors) error {
	for _, o := range r.doors.list {
		r.tasks.Go(func() {
			if err := o.serve(o.listener); err != nil {
				r.fail(fmt.Errorf("%s %s: %w", o.flag, o.address, err))
			}
		})
	}
	return nil
}

// fail ends a node at work. Only the first reason counts.
func (l *lifetime) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

func (l *lifetime) isReady() bool {
	select {
	case <-l.ready:
		return true
	default:
		return false
	}
}
