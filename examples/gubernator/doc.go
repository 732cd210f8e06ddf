// Package gubernator tries Gubernator's published Go client, as it is, against three nodes of
// Penstock: what a program does today with Gubernator goes on as before when its address points to
// any Penstock node.
//
//	go test ./...
package gubernator
