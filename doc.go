// Package penstock holds no code: it is the front page of the module. Follow one check through the
// rooms:
//
//  1. A client asks any node. A door of package rpc decodes the question and reads the clock, once.
//  2. Package cluster finds out which limit is meant, and which node owns the key. The
//     owner follows from the ring (package ring), the ring from the members, the members from
//     gossip (cluster/gossip) and agreement (cluster/ownership).
//  3. The owner decides from memory (package limiter). Any other node asks the owner through its
//     peer door, and the owner does the same thing there.
//
// Package sim runs the same nodes in an imagined world with virtual time. Package cmd/node is the
// program penstock: it alone knows all the others.
//
// The imports that each package may have, and why no others, are kept by shape_test.go beside this
// file.
package penstock
