package main

import (
	"crypto/tls"
	"log/slog"
	"time"

	"penstock/rpc/door"
	"penstock/rpc/web"
)

// Doors keep so many connections at a time, at most.
const mostConnections = 10_000

const (
	// connectionsRoom is how many bytes connections of clients may take together, beside the
	// budget of the table, which a node that has so many seldom needs whole.
	connectionsRoom = 40 << 20
	// connectionSize is what a connection takes that has asked something and is idle, by gRPC;
	// others take less. securedSize is the same with TLS.
	connectionSize = 20 << 10
	securedSize    = 32 << 10
)

// connectionsIn is how many connections of clients there is memory for.
func connectionsIn(memory size, secured bool) int {
	if secured {
		return int((int64(memory) + connectionsRoom) / securedSize)
	}
	return int((int64(memory) + connectionsRoom) / connectionSize)
}

// descriptors are how many files and sockets a node may have open, and the share of each use. A
// process without free ones can accept no connection, reach no peer and save nothing. So clients
// get only a part, and each door has a part of that which no other door can take.
type descriptors struct {
	kept   int // for peers, gossip and files
	peers  int // of kept: connections that peers may open
	own    int // of each door for clients
	common int // for the door for clients that needs it first
}

// descriptorsUnknown is taken for the limit where the system does not say it.
const descriptorsUnknown = 65_536

// share divides limit among that many doors for clients, which may have so many connections.
func share(limit, doors, connections int) (d descriptors) {
	d.kept = min(max(24, limit/4), 16_384)
	d.peers = max(4, d.kept/3)
	clients := max(2*doors, min(limit-d.kept, connections))
	d.own = min(clients/(2*max(1, doors)), mostConnections)
	d.common = clients - d.own*doors
	return d
}

// keep puts a doorkeeper before each listener.
func (o *openDoors) keep(s *settings, log *slog.Logger) {
	clients := 0
	for _, at := range o.list {
		if at.flag != "--peer" {
			clients++
		}
	}
	d := share(descriptorLimit()/max(1, s.nodes), clients,
		connectionsIn(s.Memory, s.TLSCert != ""))
	room := door.NewCommonRoom(d.common)
	for _, at := range o.list {
		c := door.KeeperConfig{
			Name: at.flag[2:], Own: d.own, Most: mostConnections, Common: room,
			Fair: true, Logger: log,
		}
		switch at.flag {
		case "--peer":
			c.Own, c.Most, c.Common, c.UserTimeout = d.peers, d.peers, nil, grpcUserTimeout
		case "--grpc":
			c.UserTimeout = grpcUserTimeout
		case "--http", "--admin":
			c.Refusal = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: " +
				"1\r\nContent-Length: 0\r\n\r\n"
		case "--redis":
			c.Refusal = "-ERR max number of clients reached\r\n"
		}
		if s.TLSCert != "" {
			c.Refusal = ""
		}
		at.keeper = door.NewKeeper(at.listener, c)
		at.listener = at.keeper
	}
}

// grpcUserTimeout is gRPC's own, of the keepalive of its doors.
const grpcUserTimeout = 5 * time.Second

// hosts are the names by which the HTTP listeners may be asked. A token, or TLS with its names,
// keeps a browser's pages out as well, and a node behind them may be asked under any name. nil:
// any.
func (r *running) hosts(d doors, token bool, clientTLS *tls.Config) *web.Hosts {
	s := &r.settings
	if (token || clientTLS != nil) && len(s.HTTPHost) == 0 {
		return nil
	}
	return web.NewHosts(append([]string{s.Name, r.doors.host, d.http.address, d.admin.address},
		s.HTTPHost...)...)
}
