package peer

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/rpc/wire"
)

// protocol is the version of what nodes say to each other. A node of another version is refused.
const protocol = "2"

// twoProtocols says what to do about nodes of another protocol.
const twoProtocols = "nodes of two protocols do not mix: run the same release on all nodes. " +
	"To keep the counters, stop all nodes with --data-dir, and start them anew with it"

// explainProtocol adds advice to a refusal by a node of another protocol, if the refusal has none:
// earlier releases give none.
func explainProtocol(err error) error {
	if status.Code(err) == codes.FailedPrecondition && !strings.Contains(err.Error(),
		twoProtocols) {
		return fmt.Errorf("%w; %s", err, twoProtocols)
	}
	return err
}

// Metadata at the beginning of a stream between nodes, in both directions; see peer.proto. The
// suffix -bin lets gRPC carry any bytes.
const (
	clusterKey  = "penstock-cluster-bin"
	nodeKey     = "penstock-node-bin"
	bootKey     = "penstock-boot"
	protocolKey = "penstock-protocol"
	// servedKey is in the trailer: the tag of the last ask that was served. Later ones were not
	// touched.
	servedKey = "penstock-served"
)

const exchangeMethod = peerv1.Peer_Exchange_FullMethodName

// greeting is how one end of a stream introduces itself.
type greeting struct {
	cluster, node string
	boot          uint64
}

func (g greeting) metadata() metadata.MD {
	return metadata.Pairs(clusterKey, g.cluster, nodeKey, g.node, bootKey, fmt.Sprintf("%016x",
		g.boot), protocolKey, protocol)
}

// readGreeting is false if md does not come from a node of this protocol; then other is the
// protocol that it names.
func readGreeting(md metadata.MD) (g greeting, other string, ok bool) {
	g.cluster, g.node, other = first(md, clusterKey), first(md, nodeKey), first(md, protocolKey)
	boot, err := strconv.ParseUint(first(md, bootKey), 16, 64)
	g.boot = boot
	return g, other, err == nil && other == protocol
}

func first(md metadata.MD, key string) string {
	if v := md.Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// admit is a peer door's answer to a node that names itself in version of the protocol; ok says
// that it is this node's. nil: the other node may stay.
func (g greeting) admit(other greeting, version string, ok bool) error {
	switch {
	case !ok:
		return status.Errorf(codes.FailedPrecondition,
			"node %s speaks protocol %s of penstock.peer, the caller %q; %s",
			g.node, protocol, version, twoProtocols)
	case other.cluster != g.cluster:
		return status.Errorf(codes.PermissionDenied, "node %s belongs to the cluster %q, "+
			"the caller to %q; give all nodes of a cluster the same name", g.node,
			g.cluster, other.cluster)
	}
	return nil
}

// Field numbers of Greeting in peer.proto.
const greetingCluster, greetingNode, greetingBoot, greetingProtocol = 1, 2, 3, 4

// appendTo appends g as a link carries it.
func (g greeting) appendTo(b []byte) []byte {
	b = wire.AppendString(b, greetingCluster, g.cluster)
	b = wire.AppendString(b, greetingNode, g.node)
	b = wire.AppendFixed(b, greetingBoot, g.boot)
	return wire.AppendString(b, greetingProtocol, protocol)
}

// parseGreeting is readGreeting for the bytes that a link carries.
func parseGreeting(b []byte) (g greeting, version string, ok bool) {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case greetingCluster:
			g.cluster = string(f.Bytes)
		case greetingNode:
			g.node = string(f.Bytes)
		case greetingBoot:
			g.boot = f.Value
		case greetingProtocol:
			version = string(f.Bytes)
		}
	}
	return g, version, f.Err == nil && version == protocol
}
