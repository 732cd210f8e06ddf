package main

import "testing"

// Promise: clients cannot fill the memory with connections, however many files the process may have
// open; and a node with the default budget has room for the most that a door may have.
func TestConnectionsFollowTheBudget(t *testing.T) {
	const files, doors = 1 << 20, 3
	for _, memory := range []size{64 << 10, 64 << 20, 256 << 20, 1 << 30} {
		for secured, each := range map[bool]int{false: connectionSize, true: securedSize} {
			d := share(files, doors, connectionsIn(memory, secured))
			room := int(memory) + connectionsRoom
			if all := d.own*doors + d.common; all*each > room || all*each < room/2 && all <
				doors*mostConnections {
				t.Errorf("--memory %d, TLS %v: %d connections of %d bytes", memory, secured, all,
					each)
			}
		}
	}
	if d := share(files, doors, connectionsIn(256<<20, false)); d.own+d.common < mostConnections {
		t.Errorf("one door has %d connections", d.own+d.common)
	}
}
