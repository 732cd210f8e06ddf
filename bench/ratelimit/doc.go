// Package ratelimit says which envoyproxy/ratelimit is measured: go.mod has it as a tool. It is a
// module of its own, since it brings a hundred others.
package ratelimit
