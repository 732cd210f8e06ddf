package peer

import (
	"strconv"
	"testing"

	"penstock/rpc/rpctest"

	"google.golang.org/grpc/metadata"
)

// Promise: whatever a caller says in its greeting, a peer door admits only callers of its own
// protocol and cluster, and takes each of them for the node that it says it is.
func FuzzGreeting(f *testing.F) {
	rpctest.MinimizeBriefly()
	f.Add("east", "n1", "000000000000002a", protocol)
	f.Add("west", "n1", "2a", protocol)
	f.Add("", "", "", "")
	f.Add("east", "n/1\n", "ffffffffffffffff", "1")
	f.Add("east", "n1", "-1", protocol)
	me := greeting{cluster: "east", node: "n9", boot: 9}
	f.Fuzz(func(t *testing.T, group, node, boot, version string) {
		md := metadata.Pairs(clusterKey, group, nodeKey, node, bootKey, boot, protocolKey, version)
		other, stated, ok := readGreeting(md)
		err := me.admit(other, stated, ok)
		number, notNumber := strconv.ParseUint(boot, 16, 64)
		if ours := group == me.cluster && version == protocol &&
			notNumber == nil; (err == nil) != ours {
			t.Fatalf("%q is answered with the error %v", md, err)
		}
		if err != nil {
			return
		}
		if want := (greeting{me.cluster, node, number}); other != want {
			t.Fatalf("%q is taken for %+v", md, other)
		}
		if again, _, ok := readGreeting(other.metadata()); !ok || again != other {
			t.Fatalf("%+v is written as %q, which is read as %+v", other, other.metadata(), again)
		}
		if again, _, ok := parseGreeting(other.appendTo(nil)); !ok || again != other {
			t.Fatalf("%+v is carried by a link as %+v", other, again)
		}
	})
}
