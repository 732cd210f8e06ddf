// Package ownership is how members agree on the owner of each partition. Follow one failover:
//
//  1. Three members a, b and c are in configuration 7 and vote on the next one. Each sends a
//     renewal to all voters every 200 ms. When two of three have acknowledged one, its sender may
//     decide for the partitions that it holds until 600 ms after it was sent, by its own clock.
//  2. The machine of c falls silent. Its last renewal was acknowledged by a and b, so 600 ms later
//     c stops deciding, if it still runs: nobody has to tell it.
//  3. a sees that c has been quiet for 600 ms. It canvasses: would b, too, let c go? b has heard
//     nothing either and consents. Nobody is bound so far.
//  4. a has configuration 8, which is 7 without c, accepted by a majority of the voters of 7.
//     Accepting seals 7: a voter that has accepted acknowledges no renewals of 7 any more, for
//     anyone. It accepts only when c has been quiet for 650 ms: then any right of c is over, by
//     whatever clock.
//  5. 8 is decided. a and b install it, renew in it, and count each other as renewed at this
//     moment. Where partitions lie follows from the configuration alone, so b knows that it owns
//     now what c had. To claim it from all members of 8, and to hold it, is the business of package
//     cluster.
//  6. b has renewed in 8 and decides. If c goes on now, its renewal of 7 is answered with 8, which
//     does not name it. So c ends, and its process takes a new boot and asks to be admitted.
//
// The package is a state machine without clocks, goroutines, channels or chance. State.Step takes
// an instant of the node's own clock and an event, and returns effects: messages to send, and
// configurations that were installed. The state, the instant and the event say everything that
// comes of it, so that a simulator and an exhaustive explorer can run it.
//
// It knows no partitions. Its tests have a model of these (keeper_model_test.go), which no node
// runs: package cluster claims, copies and gives.
//
// DESIGN.md beside this file tells the protocol from the beginning, with the hole that each rule
// closes.
package ownership
