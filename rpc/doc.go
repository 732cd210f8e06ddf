// Package rpc is a node's doors for clients in the real world, a room for each. Follow one check:
//
//  1. A client calls penstock.v1.RateLimiter/Check (rpc/native) or GET /v1/check (rpc/web). The
//     door decodes it into a cluster.Request, asks Node.Check, and encodes the decisions. All doors
//     are these lines with another codec: rpc/gubernator, rpc/redis for the Redis protocol,
//     rpc/envoy for Envoys. All share rpc/door: faults, rights, limits brought along, metrics. The
//     first two also share rpc/notation (limits and decisions as messages and JSON), rpc/hold (ids
//     of reservations), rpc/admin (penstock.v1.Admin) and rpc/overview (the page of the cluster).
//  2. If another node owns the key, the node hands its asks to peer.Lines (rpc/peer): a line to
//     each node, on which all that waits travels as one frame. The owner's door for peers answers.
//  3. rpc/clock is the node's clock, and rpc/wire protobuf by hand.
//
// The package itself has the certificates of doors and lines, and the tests of all doors together.
// Goroutines, sockets, timers and logs of a node begin in these rooms, and none of it below.
package rpc
