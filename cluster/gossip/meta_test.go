package gossip

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"pgregory.net/rapid"

	"penstock/cluster"
)

func drawMeta(t *rapid.T) meta {
	addr := rapid.StringN(0, 40, 130)
	return meta{
		state:     cluster.State(rapid.IntRange(0, int(cluster.StateLeaving)).Draw(t, "state")),
		role:      cluster.Role(rapid.IntRange(0, int(cluster.RoleAgent)).Draw(t, "role")),
		boot:      rapid.Uint64().Draw(t, "boot"),
		started:   rapid.Uint64().Draw(t, "started"),
		algorithm: rapid.Uint64().Draw(t, "algorithm"),
		peer:      addr.Draw(t, "peer"),
		grpc:      addr.Draw(t, "grpc"),
		http:      addr.Draw(t, "http"),
		features:  cluster.Features(rapid.Uint64().Draw(t, "features")),
		replaced:  [mostReplaced]uint64{rapid.Uint64Min(1).Draw(t, "replaced")},
		limits:    rapid.Uint64Min(1).Draw(t, "limits"),
		version:   rapid.StringMatching(`[!-~]{1,64}`).Draw(t, "version"),
	}
}

// The promise: a record arrives as it was sent, also if a later version has appended to it, and
// never if it was cut.
func TestMetaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMeta(t)
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		more := append(bytes.Clone(b), rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "appended")...)
		if got, err := decodeMeta(more); err != nil || got != m {
			t.Fatalf("%+v came back as %+v, %v", m, got, err)
		}
		b, m.version = b[:len(b)-1-len(m.version)], ""
		if got, err := decodeMeta(b); err != nil || got != m {
			t.Fatalf("%+v of a release without a version came back as %+v, %v", m, got, err)
		}
		m.limits = 0
		if got, err := decodeMeta(b[:len(b)-8]); err != nil || got != m {
			t.Fatalf("%+v of a release without a hash of limits came back as %+v, %v", m, got, err)
		}
		m.features, m.replaced = 0, [mostReplaced]uint64{}
		first, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		first = first[:len(first)-1] // as the first release writes it
		if got, err := decodeMeta(first); err != nil || got != m {
			t.Fatalf("%+v of the first release came back as %+v, %v", m, got, err)
		}
		cut := rapid.IntRange(0, len(first)-1).Draw(t, "cut")
		if got, err := decodeMeta(b[:cut]); err == nil {
			t.Fatalf("%d of %d bytes are taken for %+v", cut, len(b), got)
		}
	})
}

// The promise: the bytes do not change, or nodes of two versions could not meet.
func TestMetaGolden(t *testing.T) {
	m := meta{
		state: cluster.StateActive, role: cluster.RoleAgent, boot: 0x0102030405060708,
		started:   0x1112131415161718,
		algorithm: 0x2122232425262728, peer: "10.0.0.1:7947", grpc: "", http: "h:1", features: 0x81,
		limits: 0x3132333435363738,
	}
	const want = "01" + "01" + "01" + "0807060504030201" + "1817161514131211" + "2827262524232221" +
		"0d" + "31302e302e302e313a37393437" + "00" + "03" + "683a31" + "8101" + "00" +
		"3837363534333231"
	b, err := m.encode()
	if got := hex.EncodeToString(b); err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	m.version = "v1.2.3"
	const version = "06" + "76312e322e33"
	b, err = m.encode()
	if got := hex.EncodeToString(b); err != nil || got != want+version {
		t.Errorf("with a version: %v\n got %s\nwant %s", err, got, want+version)
	}
}

func TestMetaRefused(t *testing.T) {
	good, err := meta{}.encode()
	if err != nil {
		t.Fatal(err)
	}
	set := func(i int, v byte) []byte { b := bytes.Clone(good); b[i] = v; return b }
	for _, row := range []struct {
		bytes []byte
		want  string
	}{
		{nil, "ends too early"},
		{set(0, 2), "version 2"},
		{set(1, 3), "state 3"},
		{set(2, 2), "role 2"},
		{set(len(good)-2, 2), "ends too early"},
		// no uvarint
		{
			append(good[:len(good)-2:len(good)-2], bytes.Repeat([]byte{0xff}, 11)...),
			"ends too early",
		},
	} {
		if _, err := decodeMeta(row.bytes); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%x: %v; want an error with %q", row.bytes, err, row.want)
		}
	}
	if _, err := (meta{peer: strings.Repeat("x", 480)}).encode(); err != nil {
		t.Errorf("as long as possible: %v", err)
	}
	if _, err := (meta{peer: strings.Repeat("x", 481)}).encode(); err == nil ||
		!strings.Contains(err.Error(), "1 bytes too long") {
		t.Errorf("one byte longer: %v", err)
	}
}

// The promise: a version never keeps a node with long addresses from being described, and it cannot
// disturb a terminal or a log.
func TestMetaVersion(t *testing.T) {
	for _, row := range []struct{ said, want string }{
		{"v1.2.3", "v1.2.3"},
		{"", ""},
		{"v1\x1b[31m\n", "v1[31m"},
		{strings.Repeat("v", 100), strings.Repeat("v", 64)},
	} {
		if got := printable(row.said); got != row.want {
			t.Errorf("%q is carried as %q; want %q", row.said, got, row.want)
		}
	}
	m := meta{peer: strings.Repeat("x", 440), version: strings.Repeat("v", 64)}
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	m.version = ""
	if got, err := decodeMeta(b); err != nil || got != m {
		t.Errorf("%+v, %v; want the record without its version", got, err)
	}
	b, err = meta{version: "v1\n"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeMeta(b); err != nil || got.version != "" {
		t.Errorf("a version with a line's end is taken over: %q, %v", got.version, err)
	}
}

// The promise: whatever arrives, the decoder neither panics nor invents: what it takes is what
// encoding it again gives.
func FuzzMeta(f *testing.F) {
	b, _ := meta{boot: 1, started: 2, peer: "10.0.0.1:7947", http: "h:1"}.encode()
	f.Add(b)
	f.Add(append(b, "later"...))
	f.Add(b[:20])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil ||
			len(b) > memberlist.MetaMaxSize { // the library delivers none that is longer
			return
		}
		again, err := m.encode()
		if err != nil {
			return // longer than the library would have delivered
		}
		if got, err := decodeMeta(again); err != nil || got != m {
			t.Fatalf("%+v came back as %+v, %v", m, got, err)
		}
	})
}

// The promise: id and boot come back from a name, whatever the id, and other names are refused.
func TestNodeNames(t *testing.T) {
	for _, id := range []string{"a", "a/b", "héron", "a/0000000000000001"} {
		for _, boot := range []uint64{1, 0xabc, math.MaxUint64} {
			gotID, gotBoot, err := parseNodeName(nodeName(id, boot))
			if err != nil || gotID != id || gotBoot != boot {
				t.Errorf("%q, %x came back as %q, %x, %v", id, boot, gotID, gotBoot, err)
			}
		}
	}
	for _, name := range []string{
		"", "a", "a/", "a/1", "a/000000000000000G", "a/00000000000000AB", "a/+000000000000001",
		"/0000000000000001",
		"a\n/0000000000000001", fmt.Sprintf("%s/%016x", strings.Repeat("x", 256), 1),
	} {
		if id, boot, err := parseNodeName(name); err == nil {
			t.Errorf("%q is taken for %q, %x", name, id, boot)
		}
	}
}

// The promise: of two boots of one id all nodes choose the same one: the one in the ring, else the
// older one, unless the other has found it gone.
func TestPrecedes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Uint64Range(1, 3)
		draw := func(name string) meta {
			return meta{
				state: cluster.State(
					rapid.IntRange(0, int(cluster.StateLeaving)).Draw(t, name+" state"),
				),
				started: small.Draw(t, name+" started"), boot: small.Draw(t, name+" boot"),
				replaced: [mostReplaced]uint64{rapid.Uint64Range(0, 3).Draw(t, name+" replaced")},
			}
		}
		a, b := draw("a"), draw("b")
		switch {
		case a.boot == b.boot: // the same one
		case a.precedes(b) == b.precedes(a):
			t.Fatalf("%+v and %+v", a, b)
		case a.replaced[0] == b.boot && b.replaced[0] != a.boot && !a.precedes(b):
			t.Fatalf("%+v has found %+v gone", a, b)
		case a.replaced[0] != b.boot && b.replaced[0] != a.boot && a.state == cluster.StateActive &&
			b.state != cluster.StateActive && !a.precedes(b):
			t.Fatalf("%+v is in the ring, and %+v is not", a, b)
		}
	})
}

// The promise: of two boots that say that they are in the ring, the one that the cluster has agreed
// on has the name, and says that it replaces the other one. So nodes agree that do not know yet.
func TestMemberComesBefore(t *testing.T) {
	for _, x := range []struct {
		name               string
		agreed             uint64 // on this boot: 1 is the older one
		rival              bool   // the older one says that it replaces this one
		contested, replace bool
	}{
		{"on none of them", 0, false, true, false},
		{"on the older one", 1, false, true, false},
		{"on this one", 2, false, false, true},
		{"on each, in clusters of their own", 2, true, true, true},
	} {
		younger := cluster.Member{ID: "a", Boot: 2, State: cluster.StateActive}
		r, err := newRoster(younger, "", time.Unix(2, 0), func() {})
		if err != nil {
			t.Fatal(err)
		}
		older := r.me
		if older.boot, older.started = 1, 1; x.rival {
			older.replaced[0] = 2
		}
		r.agreed = func(boot uint64) bool { return boot == x.agreed }
		r.alive[nodeName("a", 1)] = peer{id: "a", meta: older}
		if any := r.outlive(); any != x.replace || r.me.replaces(older) != x.replace {
			t.Errorf("%s: this one replaces the older one: %t, %t; want %t", x.name, any,
				r.me.replaces(older), x.replace)
		}
		if got := r.me.precedes(older); got != (x.replace && !x.rival) {
			t.Errorf("%s: this one precedes the older one: %t", x.name, got)
		}
		if _, contested := r.members(); contested != x.contested {
			t.Errorf("%s: contested: %t, want %t", x.name, contested, x.contested)
		}
		if r.outlive() {
			t.Errorf("%s: it is said twice", x.name)
		}
	}
}

// The promise: a name is taken apart only if it is one that nodeName makes.
func FuzzNodeName(f *testing.F) {
	for _, name := range []string{
		"a/0000000000000001", "a/b/ffffffffffffffff", "/0000000000000000", "a/1",
		"a/+000000000000001", "a",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id, boot, err := parseNodeName(name)
		if err == nil && (nodeName(id, boot) != name || id == "" || len(id) > len(name)-17) {
			t.Fatalf("%q is taken for boot %x of %q", name, boot, id)
		}
	})
}
