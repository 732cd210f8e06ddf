// Package peerv1 is generated from peer.proto, which nodes speak among themselves. Package rpc
// reads and writes these messages with a codec of its own (rpc/peer/frame.go), and tests it against
// this package.
package peerv1
