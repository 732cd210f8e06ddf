// Package rpc is a node's doors and hands in the real world. Follow one check:
//
//  1. A client calls penstock.v1.RateLimiter/Check (server.go) or GET /v1/check (http.go). The door decodes it into a
//     cluster.Request (codec.go), asks Node.Check, and encodes the decisions; all doors are these lines with another
//     codec (of the Redis protocol: rpc/redis). What is wrong with a request is said in one place (errors.go).
//  2. If another node owns the key, the node hands its asks to Peers (peers.go). Peers has one line to each node
//     (line.go): a stream on which all that waits travels as one frame (frame.go). Each call returns with its answer, at
//     its deadline at the latest, and knows whether the peer may have acted.
//  3. The owner's peer door (exchange.go) reads the frame, has Node.Deliver answer each ask from memory, and sends the
//     answers back as one reply.
//
// Clock is the node's other hand. Goroutines, sockets, timers and logs of a node begin here, and
// none of it below.
package rpc
