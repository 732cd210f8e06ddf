package peer

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"penstock/cluster"
	"penstock/cluster/ownership"
	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/ring"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
	"penstock/rpc/wire"
)

// messageKinds are all kinds of messages, each with the number that it has in frames.
var messageKinds = map[saidKind]ownership.Message{
	1: ownership.Hello{}, 2: ownership.Vote{}, 3: ownership.Release{}, 4: ownership.Join{},
	5: ownership.Refuse{},
	6: ownership.Renew{}, 7: ownership.RenewAck{}, 8: ownership.Farewell{}, 9: ownership.Canvass{},
	10: ownership.Consent{},
	11: ownership.Prepare{}, 12: ownership.Promise{}, 13: ownership.Accept{},
	14: ownership.Accepted{}, 15: ownership.Decided{},
	16: ownership.Behind{}, 17: ownership.Missed{}, 18: ownership.Secede{}, 19: ownership.Seceded{},
}

// drawWords draws words with a few messages of any kinds.
func drawWords(t *rapid.T) *cluster.Words {
	w := &cluster.Words{
		From: drawBoot(
			t,
		), To: ownership.Boot(rapid.Uint64().Draw(t, "to")), ID: drawName(t, 1),
		Addr:    drawName(t, 0),
		Process: rapid.Uint64().Draw(t, "process"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "messages") {
		kind := saidKind(rapid.IntRange(1, len(messageKinds)).Draw(t, "kind"))
		w.Said = append(w.Said, drawSaid(t, kind))
	}
	return w
}

// drawSaid draws a message of a kind: each field is drawn by its type.
func drawSaid(t *rapid.T, kind saidKind) ownership.Message {
	m := reflect.New(reflect.TypeOf(messageKinds[kind])).Elem()
	for i := range m.NumField() {
		field := m.Type().Field(i)
		v := drawField(t, field.Type)
		absent := field.Name == "Config" && kind == saidHello ||
			kind == saidMissed // which may lack it
		if !absent || rapid.Bool().Draw(t, "there") {
			m.Field(i).Set(reflect.ValueOf(v))
		}
	}
	if p, ok := m.Interface().(ownership.Promise); ok {
		p.Accepted++
		if rapid.Bool().Draw(t, "accepted nothing") {
			p.Accepted, p.Value = 0, nil
		}
		return p
	}
	return m.Interface().(ownership.Message)
}

func drawField(t *rapid.T, of reflect.Type) any {
	switch reflect.Zero(of).Interface().(type) {
	case bool:
		return rapid.Bool().Draw(t, "flag")
	case ownership.Boot:
		return ownership.Boot(rapid.Uint64().Draw(t, "boot"))
	case []ownership.Boot:
		return drawList(t,
			func() ownership.Boot { return ownership.Boot(rapid.Uint64().Draw(t, "boot")) })
	case ownership.Ballot:
		return ownership.Ballot(rapid.Uint64Range(0, 1<<63).Draw(t, "ballot"))
	case ownership.Instant:
		return ownership.Instant(rapid.Int64().Draw(t, "instant"))
	case ownership.Epoch:
		return drawEpoch(t)
	case ownership.Member:
		return drawMember(t)
	case *ownership.Configuration:
		return drawConfig(t)
	}
	panic(fmt.Sprintf("no %v can be drawn", of))
}

func drawList[T any](t *rapid.T, one func() T) (list []T) {
	for range rapid.IntRange(0, 4).Draw(t, "entries") {
		list = append(list, one())
	}
	return list
}

func drawBoot(
	t *rapid.T,
) ownership.Boot {
	return ownership.Boot(rapid.Uint64Min(1).Draw(t, "boot"))
}

func drawName(t *rapid.T, least int) string {
	return string(rapid.SliceOfN(rapid.Byte(), least, 20).Draw(t, "name"))
}

func drawEpoch(t *rapid.T) ownership.Epoch {
	l := ownership.Founded(drawBoot(t))
	for range rapid.IntRange(0, 3).Draw(t, "children") {
		l = l.Child(drawBoot(t))
	}
	return ownership.Epoch{Lineage: l, Number: rapid.Uint64Min(1).Draw(t, "number")}
}

func drawMember(t *rapid.T) ownership.Member {
	return ownership.Member{
		ID: drawName(
			t,
			1,
		), Boot: drawBoot(t), Role: ownership.Role(rapid.IntRange(0, 1).Draw(t, "role")),
		Zone: drawName(t, 0),
	}
}

func drawConfig(t *rapid.T) *ownership.Configuration {
	c := &ownership.Configuration{Epoch: drawEpoch(t)}
	if rapid.Bool().Draw(t, "not the first") {
		c.Previous = drawEpoch(t)
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "members") {
		m := drawMember(t)
		m.ID = fmt.Sprintf("%d%s", i, m.ID) // sorted
		m.Boot = m.Boot<<8>>4 | ownership.Boot(i+1)
		if c.Members = append(c.Members, m); i == 0 || rapid.Bool().Draw(t, "votes") {
			c.Voters = append(c.Voters, m.Boot)
		}
	}
	slices.Sort(c.Voters)
	c.Rivals = drawList(t, func() ownership.Member { return drawMember(t) })
	if rapid.Bool().Draw(t, "failover") {
		c.Failover = time.Duration(rapid.Int64Range(300, 60_000).Draw(t, "ms")) * time.Millisecond
	}
	c.Copies = ownership.Copies(rapid.IntRange(0, int(ownership.TwoCopies)).Draw(t, "copies"))
	c.Secret = ownership.Secret(rapid.Uint64Range(0, 3).Draw(t, "secret"))
	return c
}

// Promise: what one boot says about ownership arrives as it was said, all kinds and all fields of
// it.
func TestWordsArriveAsSaid(t *testing.T) {
	for kind := range messageKinds {
		t.Run(fmt.Sprintf("%T", messageKinds[kind]), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := drawWords(t)
				w.Said = append(w.Said, drawSaid(t, kind))
				roundTrip(t, w)
			})
		})
	}
}

// roundTrip writes words and reads them.
func roundTrip(t interface{ Fatalf(string, ...any) }, w *cluster.Words) {
	b := appendWords(nil, 1, w)
	f := wire.Fields{Rest: b}
	if !f.Next() || len(f.Rest) != 0 {
		t.Fatalf("%+v is written as %x", w, b)
	}
	used := slices.Clone(f.Bytes)
	got, err := readWords(used)
	if err != nil {
		t.Fatalf("%+v is refused: %v", w, err)
	}
	for i := range used { // the frame is used again
		used[i] = 0xff
	}
	if !reflect.DeepEqual(got, w) {
		t.Fatalf("got  %+v\nwant %+v", got, w)
	}
}

// The kinds in frames are all that there are, under numbers that never change.
func TestAllKindsOfMessagesHaveNumbers(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../cluster/ownership/message.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "String" {
			names = append(names, f.Recv.List[0].Type.(*ast.Ident).Name)
		}
	}
	for kind, m := range messageKinds {
		name := strings.TrimPrefix(fmt.Sprintf("%T", m), "ownership.")
		if i := slices.Index(names, name); i >= 0 {
			names = slices.Delete(names, i, i+1)
		}
		if got := saidOf(m).kind; got != kind {
			t.Errorf("%s is written as kind %d instead of %d", name, got, kind)
		}
	}
	if len(names) > 0 {
		t.Errorf("no frame has %v", names)
	}
}

// largeConfig has so many members and seven voters.
func largeConfig(members int) *ownership.Configuration {
	c := &ownership.Configuration{Epoch: ownership.Epoch{Lineage: ownership.Founded(7), Number: 9}}
	c.Previous = ownership.Epoch{Lineage: c.Epoch.Lineage, Number: 8}
	for i := range members {
		c.Members = append(c.Members, ownership.Member{
			ID: fmt.Sprintf(
				"penstock-%04d.eu",
				i,
			), Boot: ownership.Boot(i+1) << 20, Zone: fmt.Sprintf("zone-%d", i%3),
		})
	}
	for _, m := range c.Members[:min(members, ownership.MaxVoters)] {
		c.Voters = append(c.Voters, m.Boot)
	}
	return c
}

// wordsOf is one message of the first member.
func wordsOf(m ownership.Message) *cluster.Words {
	return &cluster.Words{
		From:    1 << 20,
		To:      2 << 20,
		ID:      "penstock-0000.eu",
		Addr:    "10.0.0.1:7947",
		Process: 1 << 20,
		Said:    []ownership.Message{m},
	}
}

// A configuration of 1,000 members is some 40 kB.
func TestLargeConfigurations(t *testing.T) {
	for _, members := range []int{1, 3, 100, 1000, ownership.MaxMembers} {
		w := wordsOf(ownership.Decided{Config: largeConfig(members)})
		roundTrip(t, w)
		if size := len(appendWords(nil, 1, w)); size > 200+45*members {
			t.Errorf("%d members take %d bytes", members, size)
		}
	}
}

// theirWords are good words as the generated code has them.
func theirWords(said ...*peerv1.Said) *peerv1.Words {
	return &peerv1.Words{
		From:    9,
		To:      1,
		Id:      []byte("n9"),
		Addr:    []byte("n9:7947"),
		Process: 9,
		Said:    said,
	}
}

func theirConfig(change func(c *peerv1.Configuration)) *peerv1.Said {
	epoch := func(n uint64) *peerv1.Epoch {
		return &peerv1.Epoch{Lineage: make([]byte, 8), Number: n}
	}
	c := &peerv1.Configuration{
		Epoch: epoch(2), Previous: epoch(1), Voters: []uint64{1, 2},
		Members: []*peerv1.Member{{Id: []byte("a"), Boot: 1}, {Id: []byte("b"), Boot: 2}},
	}
	change(c)
	return &peerv1.Said{Kind: uint32(saidDecided), Config: c}
}

// Promise: a release that knows no secrets refuses a configuration with one, instead of looking for
// keys elsewhere than all others: it knows the codes of copies 0 to 2. And a configuration without
// a secret is written as such a release writes it.
func TestOlderReleasesRefuseASecret(t *testing.T) {
	for copies := range ownership.TwoCopies + 1 {
		for _, secret := range []ownership.Secret{0, 7} {
			c := largeConfig(3)
			c.Copies, c.Secret = copies, secret
			var said peerv1.Said
			if err := proto.Unmarshal(appendConfig(nil, c), &said); err != nil {
				t.Fatal(err)
			}
			old := said.Config
			if known := old.Copies <= 2; known != (secret == 0) ||
				old.Secret != uint64(secret) || known && old.Copies != uint32(copies) {
				t.Errorf("copies %d with a secret %t are the code %d", copies, secret != 0,
					old.Copies)
			}
		}
	}
}

// Promise: hostile or malformed words: a clear error that names the field, and nothing is taken in.
func TestBrokenWordsAreRefused(t *testing.T) {
	epoch := &peerv1.Epoch{Lineage: make([]byte, 8), Number: 1}
	many := func(n int) []*peerv1.Member {
		return slices.Repeat([]*peerv1.Member{{Id: []byte("a"), Boot: 1}}, n)
	}
	for _, row := range []struct {
		name  string
		words *peerv1.Words
		want  string
	}{
		{"no id", &peerv1.Words{From: 9}, "an id of 0 bytes"},
		{"long id", &peerv1.Words{From: 9, Id: make([]byte, 256)}, "an id of 256 bytes"},
		{
			"long addr",
			&peerv1.Words{From: 9, Id: []byte("n9"), Addr: make([]byte, maxPeerAddr+1)},
			"an addr of 513 bytes",
		},
		{"boot 0", &peerv1.Words{Id: []byte("n9")}, "the boot 0"},
		{
			"too many", theirWords(slices.Repeat([]*peerv1.Said{{Kind: 3}}, maxSaid+1)...),
			"more than 16384 messages",
		},
		{"no epoch", theirWords(&peerv1.Said{Kind: uint32(saidRenew)}), "said[0] of kind 6 has " +
			"no epoch"},
		{
			"epoch without a lineage",
			theirWords(&peerv1.Said{Kind: 6, Epoch: &peerv1.Epoch{Number: 1}}), "lineage of 0 " +
				"bytes",
		},
		{
			"odd lineage",
			theirWords(&peerv1.Said{
				Kind: 6, Epoch: &peerv1.Epoch{Lineage: make([]byte, 9), Number: 1},
			}), "lineage of 9 bytes",
		},
		{
			"long lineage",
			theirWords(&peerv1.Said{
				Kind: 6, Epoch: &peerv1.Epoch{Lineage: make([]byte, 1<<15+8), Number: 1},
			}), "lineage of 32776 bytes",
		},
		{"no configuration", theirWords(&peerv1.Said{Kind: uint32(saidAccept)}), "of kind 13 has " +
			"no config"},
		{
			"accepted nothing", theirWords(&peerv1.Said{Kind: 12, Epoch: epoch, Accepted: 1}),
			"one of accepted and config",
		},
		{"no member", theirWords(&peerv1.Said{Kind: uint32(saidJoin)}), "a member that has an id " +
			"of 0 bytes"},
		{
			"unreached",
			theirWords(&peerv1.Said{
				Kind: 6, Epoch: epoch, Boots: make([]uint64, ownership.MaxMembers+1),
			}), "at most 2048 boots",
		},
		{
			"no members",
			theirWords(theirConfig(func(c *peerv1.Configuration) { c.Members = nil })), "0 members",
		},
		{
			"many members",
			theirWords(theirConfig(func(c *peerv1.Configuration) {
				c.Members = many(ownership.MaxMembers + 1)
			})), "more than 2048 members",
		},
		{
			"many rivals",
			theirWords(theirConfig(func(c *peerv1.Configuration) {
				c.Rivals = many(ownership.MaxMembers + 1)
			})), "more than 2048 members",
		},
		{
			"no failover",
			theirWords(theirConfig(func(c *peerv1.Configuration) { c.Failover = 299 })),
			"a failover of 299ms",
		},
		{
			"a code of copies for a secret, and none",
			theirWords(theirConfig(func(c *peerv1.Configuration) { c.Copies = 5 })),
			"code of copies of 5",
		},
		{
			"a secret without its code",
			theirWords(theirConfig(func(c *peerv1.Configuration) { c.Copies, c.Secret = 1, 7 })),
			"code of copies of 253",
		},
		{
			"copies", theirWords(theirConfig(func(c *peerv1.Configuration) { c.Copies = 3 })),
			"code of copies of 3",
		},
		{
			"bad rival",
			theirWords(theirConfig(func(c *peerv1.Configuration) {
				c.Rivals = []*peerv1.Member{{}}
			})), "rivals[0] has an id of 0 bytes",
		},
		{
			"unsorted",
			theirWords(theirConfig(func(c *peerv1.Configuration) { slices.Reverse(c.Members) })),
			`members[1] is "a" after "b"`,
		},
		{
			"one boot",
			theirWords(theirConfig(func(c *peerv1.Configuration) {
				c.Members[1].Boot, c.Voters = 1, c.Voters[:1]
			})), "two members have the boot 1",
		},
		{
			"no boot",
			theirWords(theirConfig(func(c *peerv1.Configuration) { c.Members[0].Boot = 0 })),
			"members[0] has the boot 0",
		},
		{
			"role",
			theirWords(theirConfig(func(c *peerv1.Configuration) { c.Members[0].Role = 258 })),
			"members[0] has the role 255",
		},
		{
			"zone",
			theirWords(theirConfig(func(c *peerv1.Configuration) {
				c.Members[0].Zone = make([]byte, 256)
			})), "a zone of 256 bytes",
		},
		{
			"no voters", theirWords(theirConfig(func(c *peerv1.Configuration) { c.Voters = nil })),
			"0 voters",
		},
		{
			"many voters",
			theirWords(theirConfig(func(c *peerv1.Configuration) { c.Voters = make([]uint64, 8) })),
			"at most 7 boots",
		},
		{
			"stranger votes",
			theirWords(theirConfig(func(c *peerv1.Configuration) { c.Voters[1] = 3 })),
			"voters[1] is 3",
		},
		{
			"votes twice",
			theirWords(theirConfig(func(c *peerv1.Configuration) { c.Voters[1] = 1 })),
			"voters[1] is 1",
		},
		{
			"number 0", theirWords(theirConfig(func(c *peerv1.Configuration) { c.Epoch = nil })),
			"has the number 0",
		},
	} {
		f := goodFrame()
		f.Asks[0].Words = row.words
		asks, err := readFrame(&frameReader{known: new(door.LimitCache)}, frameOf(t, f), 0)
		if err != nil || len(asks) != 2 || asks[1].err != "" {
			t.Errorf("%s: %d asks, error %v: the next one suffers", row.name, len(asks), err)
		}
		if len(asks) == 2 &&
			(!strings.HasPrefix(asks[0].err, "words ") || !strings.Contains(asks[0].err,
				row.want)) {
			t.Errorf("%s: refused with %q, want %q", row.name, asks[0].err, row.want)
		}
		b := wireOf(t, &peerv1.Reply{Answers: []*peerv1.Answer{{Tag: 1, Words: row.words}}})
		if err := eachAnswer(b, func(_ uint64, b []byte) {
			if _, _, err := readAnswer(b, 0, new(lineageMemo)); err == nil ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: as an answer it is refused with %v, want %q", row.name, err, row.want)
			}
		}); err != nil {
			t.Error(err)
		}
	}
}

func wireOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Promise: neighbouring releases understand each other. A kind that a later release brings is
// passed over, and so are its fields.
func TestLaterKindsArePassedOver(t *testing.T) {
	later := &peerv1.Said{Kind: 99, Flag: true}
	known := &peerv1.Said{Kind: uint32(saidVote), Boot: 7}
	w, err := readWords(wireOf(t, theirWords(later, known)))
	if want := []ownership.Message{ownership.Vote{Founder: 7}}; err != nil ||
		!reflect.DeepEqual(w.Said, want) {
		t.Errorf("%+v, %v", w, err)
	}
}

// Promise: neighbouring releases understand each other. The kinds that earlier releases read for
// claims, gifts and copies are passed over with their fields, whatever these hold.
func TestReservedKindsArePassedOver(t *testing.T) {
	var fields []byte
	for num, v := range map[protowire.Number]uint64{11: ring.Partitions, 13: 1 << 40, 16: 7} {
		fields = protowire.AppendVarint(protowire.AppendTag(fields, num, protowire.VarintType), v)
	}
	for _, num := range []protowire.Number{13, 14, 17} {
		fields = protowire.AppendTag(fields, num, protowire.BytesType)
		fields = protowire.AppendBytes(fields, []byte{0xff, 0xff})
	}
	known := &peerv1.Said{Kind: uint32(saidVote), Boot: 7}
	for kind := uint32(20); kind <= 26; kind++ {
		if _, taken := messageKinds[saidKind(kind)]; taken {
			t.Errorf("the kind %d is a message", kind)
		}
		old := &peerv1.Said{Kind: kind, Flag: true}
		old.ProtoReflect().SetUnknown(fields)
		w, err := readWords(wireOf(t, theirWords(old, known, old)))
		if want := []ownership.Message{ownership.Vote{Founder: 7}}; err != nil ||
			!reflect.DeepEqual(w.Said, want) {
			t.Errorf("of kind %d: %+v, %v", kind, w, err)
		}
	}
}

// Promise: memory follows what has arrived, and never a length that is only stated.
func TestWordsTakeNoMemoryForWhatIsMissing(t *testing.T) {
	epoch := &peerv1.Epoch{Lineage: make([]byte, 8), Number: 1}
	b := wireOf(t, &peerv1.Said{
		Kind: uint32(saidRenew), Epoch: epoch, Boots: []uint64{1, 2, 300}, Reply: true,
	})
	for n := range b {
		m, err := readSaid(b[:n])
		if m == nil || err != nil {
			continue
		}
		f := wire.Fields{Rest: appendSaid(nil, 1, m)}
		if f.Next() && len(f.Bytes) != n &&
			len(f.Bytes) != n-2 { // the last field means nothing in a renewal
			t.Errorf("%d of %d bytes are read as %+v", n, len(b), m)
		}
	}
	stated := []byte{
		6<<3 | 2,
		0xff,
		0xff,
		0xff,
		0x7f,
		1,
	} // a message of 256 MiB, of which one byte is there
	if n := testing.AllocsPerRun(10, func() { readWords(stated) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// Promise: no bytes of a peer crash a node, and all that is read means the same when it is handed
// on.
func FuzzWords(f *testing.F) {
	rpctest.MinimizeBriefly()
	epoch := &peerv1.Epoch{Lineage: make([]byte, 8), Number: 1}
	for kind := range messageKinds {
		f.Add(wireOf(f, theirWords(&peerv1.Said{
			Kind: uint32(
				kind,
			), Epoch: epoch, Boot: 9, Flag: true, Reply: true, SentNs: 5, ClockNs: -6,
			Member: &peerv1.Member{Id: []byte("n9"), Boot: 9, Role: 1, Zone: []byte("z")},
			Config: theirConfig(func(*peerv1.Configuration) {}).Config, Ballot: 17, Accepted: 16,
			Boots: []uint64{3},
		})))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := readWords(b)
		if err != nil {
			return
		}
		for _, m := range w.Said {
			_ = m.String()
		}
		w.Forged("n9", 9, true)
		roundTrip(t, w)
	})
}

// BenchmarkWords writes and reads what a voter sends with a configuration, and a renewal.
func BenchmarkWords(b *testing.B) {
	renewal := wordsOf(ownership.Renew{Epoch: largeConfig(3).Epoch, Sent: 1 << 60})
	all := map[string]*cluster.Words{"renewal": renewal}
	for _, members := range []int{3, 100, 1000} {
		all[fmt.Sprint(members, "_members")] = wordsOf(
			ownership.Decided{Config: largeConfig(members)},
		)
	}
	for name, w := range all {
		buf := appendWords(nil, 1, w)
		f := wire.Fields{Rest: buf}
		f.Next()
		b.Run(name+"/write", func(b *testing.B) {
			b.ReportAllocs()
			scratch := slices.Clone(buf)
			for b.Loop() {
				scratch = appendWords(scratch[:0], 1, w)
			}
			b.ReportMetric(float64(len(buf)), "bytes")
		})
		b.Run(name+"/read", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readWords(f.Bytes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Promise: a list of partitions that comes in pieces is bounded as a whole.
func TestPartitionsInPieces(t *testing.T) {
	for before := range ring.Partitions + 1 {
		b := protowire.AppendTag(nil, 1, protowire.BytesType)
		f := wire.Fields{Rest: protowire.AppendBytes(b, []byte{3, 4})}
		if !f.Next() {
			t.Fatal(f.Err)
		}
		list, err := readPartitions(make([]uint16, before), &f)
		fits := before+2 <= ring.Partitions
		if fits != (err == nil) || fits && len(list) != before+2 {
			t.Fatalf("2 partitions after %d: %d, %v", before, len(list), err)
		}
	}
}
