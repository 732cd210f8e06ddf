// Package history is what a node remembers for its operators: an hour of counts, the latest events,
// the latest answers about keys, and the keys that are asked for most. All of it is in memory, of a
// fixed size, and gone with the process.
//
//  1. A Recorder observes the node (cluster.Observer). Under load it takes a part: of keys for the
//     latest answers, of checks for the keys that are asked for most (sampling.go).
//  2. Once a second it reads the node's counters into Series, and compares what it reads with the
//     second before: what has changed is an Event (recorder.go, events.go).
//  3. After a member has failed, the latest answers say which units its heirs did not know of
//     (failure.go).
//
// What a node remembers, at most: Series 16 KiB, events 256 × about 0.4 KiB, answers 8192 × 104
// bytes, keys asked for most, and those that candidates refuse, 3 × 512 × (80 bytes and the key),
// failures 8 × 256 × about 120 bytes. That is 1.5 MiB with keys of 40 bytes, and 3 MiB with the
// longest keys.
//
// Functions that judge are pure: they get what happened and the time, and read no clock.
package history
