package peer

import (
	"slices"
	"strconv"
	"testing"

	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"

	"penstock/rpc/rpctest"
	"penstock/rpc/wire"
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

// Promise: a greeting that is cut, goes on with what is no field, or is of another protocol is
// refused.
func TestGreetingIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(0, 9, 9)
		g := greeting{name.Draw(t, "cluster"), name.Draw(t, "node"), rapid.Uint64().Draw(t, "boot")}
		whole := g.appendTo(nil)
		if other, _, ok := parseGreeting(whole); !ok || other != g {
			t.Fatalf("%+v is read as %+v", g, other)
		}
		if cut := rapid.IntRange(0, len(whole)-1).Draw(t, "cut"); cut < len(whole) {
			if _, _, ok := parseGreeting(whole[:cut]); ok {
				t.Fatalf("%d of %d bytes are a greeting", cut, len(whole))
			}
		}
		if _, _, ok := parseGreeting(append(slices.Clone(whole), 0xff)); ok {
			t.Fatal("bytes behind the last field are passed over")
		}
		other := wire.AppendString(slices.Clone(whole), greetingProtocol, protocol+"x")
		if _, _, ok := parseGreeting(other); ok {
			t.Fatal("another protocol is taken for this one")
		}
	})
}
