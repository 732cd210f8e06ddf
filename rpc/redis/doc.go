// Package redis is the door for clients of the Redis protocol: RL.* as Smyte's rate limiter has
// them, CL.THROTTLE as redis-cell has it, and what stock clients say besides when they connect.
// Replies are those of the origins, byte for byte. Follow a pipeline of commands:
//
//  1. Server (server.go) accepts the connection, and starts a goroutine for it.
//  2. The connection (connection.go) has its wire (wire.go) read into a buffer of 16 KiB. All
//     commands that have arrived belong to one round; package resp finds their words.
//  3. A command (commands.go has the table) that checks becomes an item: its numbers become an
//     inline limit (limits.go for RL.*, cell.go for CL.THROTTLE), which counts together with the
//     same limit of any other door.
//  4. The round (round.go) asks whether the client may (client.go) and has cluster.Node.Check
//     decide. The replies are appended in order, and one write sends them.
//  5. DEL, TTL and EXISTS (keys.go) peek at keys of CL.THROTTLE, and reset them. MULTI and EXEC
//     (multi.go) queue commands, and run them one after the other; nothing is rolled back.
//
// DESIGN.md says why, and where the door differs from its origins.
package redis
