package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"penstock/rpc"
	"penstock/rpc/door"
	"penstock/rpc/envoy"
	"penstock/rpc/fair"
	"penstock/rpc/native"
	"penstock/rpc/peer"
	"penstock/rpc/redis"
	"penstock/rpc/web"
)

// makeDoors puts a server behind each listener.
func (r *running) makeDoors(_ context.Context, d doors) error {
	s := &r.settings
	clientTLS, err := r.clientTLS()
	if err != nil {
		return err
	}
	if err := r.files.openAudit(); err != nil {
		return err
	}
	clients, err := r.files.readClients()
	if err != nil {
		return err
	}
	inlines := &door.Inlines{Deny: s.Inline == "deny", Node: r.node}
	gate := fair.New()
	r.doors.charge(gate, s.TLSCert != "")
	r.makeEnvoy(inlines)
	pages := web.Config{
		Node: r.node, Clients: clients, Audit: r.files.audit, Version: version(),
		Started: r.started, Admin: s.Admin == "", Roster: &r.roster, Catalog: r.catalog,
		Overview: r.page, Draining: r.draining.Load, Drain: r.drain, TrustedProxies: s.TrustedProxy,
		Metrics: r.newMetrics(clientTLS),
		Hosts:   r.hosts(d, clients != nil, clientTLS),
		Doors:   map[string]http.Handler{"POST /json": r.envoy}, Inlines: inlines, Gate: gate,
		Trace: r.spans.tracer,
	}
	pages.Metrics.AddGate(gate)
	if o := r.doors.of("--http"); o != nil {
		o.serveHTTP(web.NewServer(web.New(pages)), clientTLS)
	}
	calls := native.Config{
		Node: r.node, Clock: r.clock, TLS: clientTLS, Clients: clients, Audit: r.files.audit,
		Draining: r.draining.Load, Drain: r.drain,
		AdminElsewhere: s.Admin != "", Roster: &r.roster, Catalog: r.catalog,
		Recorder: r.history, Doors: []native.Door{r.envoy},
		Unfinished: unfinished(s.Memory), Logger: r.log,
		Metrics: pages.Metrics, Inlines: inlines, Gate: gate, Trace: r.spans.tracer,
	}
	if o := r.doors.of("--grpc"); o != nil {
		o.serveGRPC(native.NewServer(calls))
	}
	if o := r.doors.of("--admin"); o != nil {
		calls.Unfinished = adminUnfinished
		given := door.NewHandover(o.listener.Addr(), gate, connectionCost(s.TLSCert != ""))
		o.serveBoth(web.NewAdmin(pages), native.NewAdminServer(calls), given, clientTLS)
	}
	if o := r.doors.of("--redis"); o != nil {
		server := redis.New(redis.Config{
			Node: r.node, TLS: clientTLS, Clients: clients, Audit: r.files.audit,
			Draining: r.draining.Load, Metrics: pages.Metrics, Inlines: inlines, Gate: gate,
		})
		o.serve, o.close = server.Serve, server.Shutdown
	}
	if o := r.doors.of("--peer"); o != nil {
		if err := r.serveNodes(o, pages.Metrics); err != nil {
			return err
		}
	}
	return nil
}

// makeEnvoy makes the door that stands behind two of the listeners.
func (r *running) makeEnvoy(inlines *door.Inlines) {
	r.envoy = envoy.New(r.node, r.clock, inlines)
	r.envoy.Record(r.files.audit)
}

// charge has clients pay for connections. Those to --admin are let in also from an address that
// floods another door; what is asked over them is paid for.
func (o *openDoors) charge(gate *fair.Gate, tls bool) {
	for _, d := range o.list {
		if d.flag != "--peer" && d.flag != "--admin" {
			d.keeper.Charge(gate, connectionCost(tls))
		}
	}
}

// connectionCost is about what a connection takes of a processor until its first request, with the
// handshake of TLS where there is one.
func connectionCost(tls bool) time.Duration {
	if tls {
		return 600 * time.Microsecond
	}
	return 60 * time.Microsecond
}

// serveNodes puts the server for the other nodes behind the listener o.
func (r *running) serveNodes(o *openDoor, metrics *door.Metrics) error {
	var secured *tls.Config
	if r.settings.PeerTLSCert != "" {
		files, err := r.peerFiles().Server()
		if err != nil {
			return fmt.Errorf("--peer-tls-cert: %w", err)
		}
		secured = rpc.PeerTLS(files)
		metrics.AddCertificate("peer", secured)
	}
	o.serveGRPC(peer.NewServer(peer.ServerConfig{
		Node: r.node, Cluster: r.settings.Cluster, Clock: r.clock, TLS: secured, Logger: r.log,
		Catalog: r.catalog, Inquiries: r.page, Trace: r.spans.peer(),
	}))
	return nil
}

// leastUnfinished is the least memory for gRPC calls with incomplete requests; a node
// with much for counters has half as much for those.
const leastUnfinished = 32 << 20

// adminUnfinished is the same for gRPC at --admin.
const adminUnfinished = 8 << 20

func unfinished(memory size) int64 { return max(leastUnfinished, int64(memory)/2) }
