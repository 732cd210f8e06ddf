// Package peer is what nodes say to each other: lines, the frames on them, and the door at their
// other end. Follow one ask to the owner of a key:
//
//  1. cluster.Node hands its calls to Lines (peers.go), its Network. There is one line to each node
//     (line.go, line_stream.go), over a link (link.go) or a stream of gRPC (carrier.go). An ask
//     that finds nothing waiting is sent at once, and those that come meanwhile share the next
//     frame.
//  2. Both begin with a greeting (greeting.go, line_open.go, link_door.go): cluster, node and boot,
//     and the protocol. A certificate has to be the node's own (identity.go). A line is for one
//     boot of a node.
//  3. A frame (frame.go, frame_answer.go, frame_move.go for partitions, frame_config.go and
//     frame_words.go for what members agree on) is protobuf, read and written by hand. Its limits
//     are written once each. A line weighs an ask before it is written (frame_limit.go).
//  4. The door (exchange.go) reads a frame, has Node.Deliver answer each ask from memory, and sends
//     the answers back as one reply. Asks that have to wait get a goroutine each, within bounds
//     (late.go).
//  5. A call ends with its answer, at its deadline at the latest, and knows whether the peer may
//     have acted: the end of a link, or the trailer of a stream, says how far the door got.
//
// A snapshot of the counters (snapshot.go) is a file of such frames. docs/design.md says why.
package peer
