package door

import "testing"

// Promise: a client has one mark at all nodes, and no other client has it; an address on the
// machine of a node, or a Unix socket, is another client at each.
func TestMarks(t *testing.T) {
	marks := map[uint64]string{}
	for addr, everywhere := range map[string]bool{
		"192.0.2.1:7": true, "192.0.2.2:7": true, "10.0.0.1:7": true, "[2001:db8::1]:7": true,
		"[2001:db8:0:1::1]:7": true, "127.0.0.1:7": false, "127.0.0.2:7": false, "[::1]:7": false,
		"": false, "@": false,
	} {
		c := Caller{Addr: addr}
		here, there := c.Mark("n1"), c.Mark("n2")
		if here == 0 || (here == there) != everywhere || here != c.Mark("n1") {
			t.Errorf("%q: %x at one node, %x at another", addr, here, there)
		}
		for _, m := range []uint64{here, there} {
			if other, taken := marks[m]; taken && other != addr {
				t.Errorf("%q has the mark of %q", addr, other)
			}
			marks[m] = addr
		}
	}
	if (Caller{Addr: "192.0.2.1:7"}).Mark("n1") != (Caller{Addr: "192.0.2.1:8"}).Mark("n1") ||
		(Caller{Addr: "[2001:db8::1]:7"}).Mark("n") != (Caller{Addr: "[2001:db8::2]:7"}).Mark("n") {
		t.Error("another port, or another address of a network, is another client")
	}
}
