// Package rpc is a node's doors for clients in the real world. Follow one check:
//
//  1. A client calls penstock.v1.RateLimiter/Check (server.go) or GET /v1/check (http.go). The door
//     decodes it into a cluster.Request (codec.go), asks Node.Check, and encodes the decisions. All
//     doors are these lines with another codec: rpc/gubernator, rpc/redis for the
//     Redis protocol, rpc/envoy for Envoys. What they share is in rpc/door: faults, rights, limits brought along, metrics.
//  2. If another node owns the key, the node hands its asks to peer.Lines (rpc/peer): a stream to
//     each node, on which all that waits travels as one frame. The owner's door for peers answers.
//  3. rpc/clock is the node's clock, and rpc/wire protobuf by hand.
//
// Goroutines, sockets, timers and logs of a node begin here, and none of it below.
package rpc
