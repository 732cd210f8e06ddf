// Package notation is how a limit and a decision are written for clients: limits as messages of
// penstock.v1 and as JSON in the words of the limits' files, decisions as messages. Both directions
// of a limit stand side by side, and a test of rpc/web holds them against each other.
package notation
