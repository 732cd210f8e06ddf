package peer

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"penstock/cluster"
	"penstock/limiter"
	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/ring"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
	"penstock/rpc/wire"
)

// readAsk is what a frameReader has handed over, copied out of the frame.
type readAsk struct {
	tag uint64
	ask cluster.Ask
	err string
}

func readFrame(r *frameReader, b []byte, now limiter.Instant) (asks []readAsk, err error) {
	err = r.read(b, now, func(tag uint64, a *cluster.Ask, err error) {
		got := readAsk{tag: tag}
		if err != nil {
			got.err = err.Error()
		} else {
			got.ask = *a
			got.ask.Items = slices.Clone(a.Items)
			got.ask.Forget = append([]uint64(nil), a.Forget...)
			for i := range got.ask.Items {
				got.ask.Items[i].Key = strings.Clone(a.Items[i].Key)
			}
		}
		asks = append(asks, got)
	})
	return asks, err
}

func drawLimit(t *rapid.T) *limiter.Limit {
	s := limiter.Spec{
		Name:      rapid.StringMatching(`[a-zä]{1,20}`).Draw(t, "name"),
		Algorithm: limiter.Algorithm(rapid.IntRange(1, 10).Draw(t, "algorithm")),
		Limit:     rapid.Int64Range(1, limiter.MaxLimit).Draw(t, "limit"),
		Per: time.Duration(rapid.Int64Range(int64(limiter.MinPer),
			int64(limiter.MaxPer)).Draw(t, "per")),
	}
	if s.Algorithm == limiter.FixedWindow {
		s.Anchor = limiter.Anchor(rapid.IntRange(0, 1).Draw(t, "anchor"))
		s.CountRejected = rapid.Bool().Draw(t, "count_rejected")
		if s.Anchor == limiter.Epoch && rapid.Bool().Draw(t, "calendar?") {
			s.Calendar, s.Per = limiter.Calendar(rapid.IntRange(1, 6).Draw(t, "calendar")), 0
			s.TimeZone = rapid.SampledFrom([]string{"UTC", "Europe/Berlin"}).Draw(t, "time_zone")
		}
	}
	switch s.Algorithm {
	case limiter.SlidingLog:
		s.Limit = min(s.Limit, limiter.MaxLog)
		s.MinGap = time.Duration(rapid.Int64Range(0, int64(s.Per)).Draw(t, "min_gap"))
	case limiter.TokenBucket:
		s.Refill = s.Limit/2 + 1
		s.Anchor = limiter.FirstHit
		s.Strict, s.Drain = rapid.Bool().Draw(t, "strict"), rapid.Bool().Draw(t, "drain")
		s.ClientTime, s.Sessions = rapid.Bool().Draw(t, "client_time"), rapid.Bool().Draw(t,
			"sessions")
		if s.ClientTime {
			s.Per = s.Per.Truncate(time.Millisecond)
		}
	case limiter.SlidingCounter:
		s.Buckets = 1
		s.Lenient = rapid.Bool().Draw(t, "lenient")
	case limiter.Concurrency:
		s.Buckets = 1
	case limiter.StatedBucket:
		s.Burst = 1 + s.Limit/2
	}
	s.DryRun = rapid.Bool().Draw(t, "never_denies")
	if rapid.Bool().Draw(t, "overrides?") {
		s.Override, s.Unlimited = rapid.StringMatching(`[a-zä*]{1,20}`).Draw(t, "override"),
			rapid.Bool().Draw(t, "unlimited")
	}
	if s.Algorithm < limiter.StatedWindow {
		s.MaxDebt = rapid.Int64Range(0, 20).Draw(t, "max_debt")
	}
	if s.Override != "" && rapid.Bool().Draw(t, "plan?") {
		s.Override, s.Planned = "plan pro", true
	}
	more := rapid.SampledFrom([]func(s *limiter.Spec){
		func(*limiter.Spec) {},
		func(s *limiter.Spec) { s.Nameless = true },
		func(s *limiter.Spec) { s.Inline = true },
		func(s *limiter.Spec) { s.Sync = true },
		func(s *limiter.Spec) { s.Consistency = limiter.Replicated },
		func(s *limiter.Spec) { s.Consistency = limiter.Leased },
		func(s *limiter.Spec) { s.Unsettled = limiter.UnsettledRelease },
	}).Draw(t, "more")
	other := s
	if more(&other); rapid.Bool().Draw(t, "more?") {
		if _, err := limiter.New(other); err == nil {
			s = other
		}
	}
	with := s
	with.OnDeny, with.MaxDelay = limiter.DenyDelay, time.Duration(
		rapid.Int64Range(0, int64(limiter.LongestDelay)).Draw(t, "max_delay"))
	if l, err := limiter.New(with); err == nil {
		return l
	}
	l, err := limiter.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Promise: what is answered later, when its frame is used again, is what was asked.
func TestKeptAskOutlivesItsFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w frameWriter
		w.reset()
		a := drawAsk(t, []*limiter.Limit{drawLimit(t), drawLimit(t)})
		w.add(7, a, int64(time.Second))
		read := func(b []byte) (asked *cluster.Ask) {
			reader := &frameReader{known: new(door.LimitCache)}
			if err := reader.read(b, 0, func(_ uint64, a *cluster.Ask, _ error) {
				asked = keep(a)
			}); err != nil {
				t.Fatal(err)
			}
			return asked
		}
		used := slices.Clone(w.buf)
		got := read(used)
		for i := range used {
			used[i] = 0xff
		}
		var again frameWriter
		if again.add(7, got, int64(time.Second)); !bytes.Equal(again.buf, w.buf) {
			t.Fatalf("once its frame is used again an ask is\n%x, want\n%x", again.buf, w.buf)
		}
	})
}

func drawAsk(t *rapid.T, limits []*limiter.Limit) *cluster.Ask {
	a := &cluster.Ask{
		RingHash: rapid.Uint64().Draw(t, "ring"), Hop: rapid.Uint8().Draw(t, "hop"),
		Atomic: rapid.Bool().Draw(t, "atomic"),
		Relay:  rapid.Bool().Draw(t, "relay"), From: rapid.Uint64().Draw(t, "asker"),
		For: rapid.Uint64().Draw(t, "for"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "forgets") {
		a.Forget = append(a.Forget, rapid.Uint64().Draw(t, "forget"))
	}
	for range rapid.IntRange(1, 5).Draw(t, "items") {
		a.Items = append(a.Items, cluster.AskItem{
			Limit: rapid.SampledFrom(limits).Draw(t, "of"),
			Key:   string(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")),
			Cost:  rapid.Int64().Draw(t, "cost"),
			Op:    cluster.Op(rapid.IntRange(0, 2).Draw(t, "op")),
			ID: cluster.ID{
				Origin: rapid.Uint64().Draw(t, "origin"), Sequence: rapid.Uint64().Draw(t,
					"sequence"),
			},
			Terms: drawTerms(t),
			Hold:  drawHold(t),
			Tell:  rapid.Bool().Draw(t, "tell"),
		})
	}
	if rapid.Bool().Draw(t, "traced?") {
		a.Trace = cluster.Trace{ID: [16]byte{1, 2, 15: 3}, Span: [8]byte{4, 7: 5}}
		a.Trace.ID[7] = rapid.Byte().Draw(t, "trace")
	}
	if rapid.Bool().Draw(t, "move?") {
		a.Move = drawMove(t, limits)
	}
	if rapid.Bool().Draw(t, "words?") {
		a.Words = drawWords(t)
	}
	return a
}

func drawMove(t *rapid.T, limits []*limiter.Limit) *cluster.Move {
	m := &cluster.Move{
		From: rapid.Uint64().Draw(t, "from"),
		To:   rapid.Uint64().Draw(t, "to"),
		ID:   rapid.StringN(0, 9, 9).Draw(t, "id"),
		Term: rapid.Uint64().Draw(t, "term"),
		Addr: rapid.StringN(0, 9, 9).Draw(t, "addr"),

		Secret: cluster.Secret(rapid.Uint64().Draw(t, "secret")),

		Claiming: cluster.Claiming{Claim: drawPartitions(t, "claim")},
		Copying: cluster.Copying{
			Sequence: rapid.Uint64().Draw(t, "sequence"),
			Begin:    drawPartitions(t, "begin"),
			End:      drawPartitions(t, "end"),
			Lent:     drawPartitions(t, "lent"),
			Age:      time.Duration(rapid.Int64Min(0).Draw(t, "age")),
			Whole:    drawPartitions(t, "whole"),
			Lack: cluster.Lack{
				Of:  drawPartitions(t, "lacking"),
				Age: time.Duration(rapid.Int64Min(0).Draw(t, "lack age")),
			},
			Pass:     rapid.Uint64().Draw(t, "pass"),
			Complete: rapid.Bool().Draw(t, "complete"),
		},
		Giving: cluster.Giving{Gift: drawPartitions(t, "gift")},
	}
	m.Heard = rapid.Uint64().Draw(t, "heard")
	m.Stored = time.Duration(rapid.Int64Min(0).Draw(t, "stored"))
	m.Up = time.Duration(rapid.Int64Min(0).Draw(t, "up"))
	for range rapid.IntRange(0, 3).Draw(t, "known") {
		m.Known = append(m.Known, cluster.Known{
			Of: rapid.Uint64().Draw(t, "of boot"), Pass: rapid.Uint64().Draw(t, "until"),
			Whole: drawPartitions(t, "known whole"),
		})
	}
	if rapid.Bool().Draw(t, "epoch?") {
		m.Epoch = drawEpoch(t)
	}
	for range rapid.IntRange(0, 3).Draw(t, "entries") {
		m.Entries = append(m.Entries, limiter.Entry{
			Limit: rapid.SampledFrom(limits).Draw(t, "of"),
			Key:   string(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")),
			State: rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "state"),
			Age:   time.Duration(rapid.Int64Min(0).Draw(t, "age")),
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "charges") {
		m.Charges = append(m.Charges, cluster.Charge{
			Limit: rapid.SampledFrom(limits).Draw(t, "of"), Key: string(rapid.SliceOfN(rapid.Byte(),
				1, 40).Draw(t, "key")),
			Units: rapid.Int64().Draw(t, "units"), Reset: rapid.Bool().Draw(t, "reset"),
			State: string(rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "state")),
			Age:   time.Duration(rapid.Int64Min(0).Draw(t, "age")),
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "holds") {
		h := cluster.HoldCopy{Left: time.Duration(rapid.Int64Min(0).Draw(t, "left"))}
		h.ID = limiter.HoldID{
			Origin: rapid.Uint64().Draw(t, "origin"), Sequence: rapid.Uint64().Draw(t, "sequence"),
		}
		h.Limit, h.Key = rapid.SampledFrom(limits).Draw(t, "of"),
			string(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key"))
		h.Units, h.Used = rapid.Int64Min(0).Draw(t, "units"), rapid.Int64Min(0).Draw(t, "used")
		h.State, h.Holder = limiter.HoldState(rapid.IntRange(1, 3).Draw(t, "state")),
			string(rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "holder"))
		h.Charge, h.Client = rapid.Bool().Draw(t, "charge"), rapid.Uint64().Draw(t, "client")
		m.Holds = append(m.Holds, h)
	}
	for range rapid.IntRange(0, 3).Draw(t, "taken") {
		m.Taken = append(m.Taken, cluster.Memory{
			ID: cluster.ID{
				Origin: rapid.Uint64().Draw(t, "origin"), Sequence: rapid.Uint64().Draw(t,
					"sequence"),
			},
			Partition: uint16(rapid.IntRange(0, ring.Partitions-1).Draw(t, "partition")),
			Age:       time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "age")),
			Decisions: []limiter.Decision{drawDecision(t)},
			GivesBack: rapid.Bool().Draw(t, "gives back"),
		})
	}
	return m
}

func drawPartitions(t *rapid.T, name string) (list []uint16) {
	for range rapid.IntRange(0, 4).Draw(t, name+"s") {
		list = append(list, uint16(rapid.IntRange(0, ring.Partitions-1).Draw(t, name)))
	}
	return list
}

func drawHold(t *rapid.T) *cluster.HoldTerms {
	if rapid.Bool().Draw(t, "no hold") {
		return nil
	}
	return &cluster.HoldTerms{
		ID: cluster.ID{
			Origin: rapid.Uint64().Draw(t, "hold's origin"), Sequence: rapid.Uint64().Draw(t,
				"hold's sequence"),
		},
		TTL:    time.Duration(rapid.Int64Min(0).Draw(t, "ttl")),
		Holder: string(rapid.SliceOfN(rapid.Byte(), 0, limiter.MaxHolder).Draw(t, "holder")),
		Charge: rapid.Bool().Draw(t, "charge"), Client: rapid.Uint64().Draw(t, "client"),
	}
}

func drawTerms(t *rapid.T) cluster.Terms {
	if rapid.Bool().Draw(t, "plain") {
		return cluster.Terms{}
	}
	return cluster.Terms{
		Report: rapid.Bool().Draw(t, "report"), Drain: rapid.Bool().Draw(t, "drain"),
		Strict: rapid.Bool().Draw(t, "strict"),
		Timed:  rapid.Bool().Draw(t, "timed"), At: limiter.Millis(rapid.Int64().Draw(t, "at")),
		Bounded: rapid.Bool().Draw(t, "bounded"), MaxDelay: time.Duration(
			rapid.Int64Range(0, int64(limiter.LongestDelay)).Draw(t, "max_delay")),
	}
}

// TestEveryFieldIsDrawn: each field is set at times. The tests below would not notice that a field
// is written wrong, or not at all, if they never saw it.
func TestEveryFieldIsDrawn(t *testing.T) {
	seen := map[string]bool{} // by its path: whether it was ever set
	var look func(path string, v reflect.Value)
	look = func(path string, v reflect.Value) {
		seen[path] = seen[path] || !v.IsZero()
		switch {
		case v.Type() == reflect.TypeFor[*limiter.Limit]():
		case v.Kind() == reflect.Pointer && v.IsNil():
		case v.Kind() == reflect.Pointer:
			look(path, v.Elem())
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				look(path+"[]", v.Index(i))
			}
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				look(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		}
	}
	ask := rapid.Custom(func(t *rapid.T) *cluster.Ask {
		return drawAsk(t, []*limiter.Limit{drawLimit(t)})
	})
	answer, limit := rapid.Custom(drawAnswer), rapid.Custom(drawLimit)
	for i := range 1000 {
		look("Ask", reflect.ValueOf(ask.Example(i)))
		look("Answer", reflect.ValueOf(answer.Example(i)))
		look("Spec", reflect.ValueOf(limit.Example(i).Spec))
	}
	elsewhere := regexp.MustCompile(`^Ask.Deadline$|Hold.(hash|stored|changed|forget|Deadline)$|` +
		`^Answer.(asked|under.*)$|.Closed$|^Spec.(Answers.*|OnError|OnPartition|Parent)$|` +
		`^Answer.Owners\[\].(State|Role|Zone|HTTPAddr|GRPCAddr|Limits)$`)
	for path, set := range seen {
		if !set && !elsewhere.MatchString(path) {
			t.Errorf("%s is never drawn", path)
		}
	}
}

// TestFramesAreProtobuf holds the codec against the generated one: what it writes, the generated
// code reads as the same asks; what either writes, it reads as what was asked.
func TestFramesAreProtobuf(t *testing.T) {
	reader := &frameReader{known: new(door.LimitCache)}
	var w frameWriter
	rapid.Check(t, func(t *rapid.T) {
		var limits []*limiter.Limit
		for range rapid.IntRange(1, 4).Draw(t, "limits") {
			limits = append(limits, drawLimit(t))
		}
		now := limiter.Instant(rapid.Int64Range(0, 1<<60).Draw(t, "now"))
		var want []readAsk
		w.reset()
		for range rapid.IntRange(0, 4).Draw(t, "asks") {
			a := drawAsk(t, limits)
			left := rapid.Int64Range(1, int64(time.Hour)).Draw(t, "left")
			tag := rapid.Uint64().Draw(t, "tag")
			w.add(tag, a, left)
			a.Deadline = now.Add(time.Duration(left))
			want = append(want, readAsk{tag: tag, ask: *a})
		}

		var message peerv1.Frame
		if err := proto.Unmarshal(w.buf, &message); err != nil {
			t.Fatalf("generated code cannot read the frame: %v", err)
		}
		for i, a := range message.Asks {
			compareAsk(t, now, &want[i], &message, a)
		}
		theirs, err := proto.Marshal(&message)
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{"own": w.buf, "generated": theirs} {
			got, err := readFrame(reader, b, now)
			if err != nil || len(got) != len(want) {
				t.Fatalf("%s frame: %d asks of %d, error %v", name, len(got), len(want), err)
			}
			for i := range got {
				for k := range got[i].ask.Items { // the reader has limits of its own, equal to ours
					g, o := &got[i].ask.Items[k], &want[i].ask.Items[k]
					if g.Limit.Spec != o.Limit.Spec {
						t.Fatalf("%s frame, ask %d: limit %+v, want %+v", name, i, g.Limit.Spec,
							o.Limit.Spec)
					}
					g.Limit = o.Limit
				}
				if m := got[i].ask.Move; m != nil && want[i].ask.Move != nil {
					for k := range m.Entries {
						g, o := &m.Entries[k], &want[i].ask.Move.Entries[k]
						if g.Limit.Spec != o.Limit.Spec {
							t.Fatalf("%s frame, move %d: limit %+v, want %+v", name, i,
								g.Limit.Spec, o.Limit.Spec)
						}
						g.Limit = o.Limit
					}
					for k := range m.Charges {
						m.Charges[k].Limit = want[i].ask.Move.Charges[k].Limit
					}
					for k := range m.Holds {
						m.Holds[k].Limit = want[i].ask.Move.Holds[k].Limit
					}
				}
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Fatalf("%s frame, ask %d:\n got %+v\nwant %+v", name, i, got[i], want[i])
				}
			}
		}
	})
}

func compareAsk(t *rapid.T, now limiter.Instant, want *readAsk, frame *peerv1.Frame,
	a *peerv1.Ask,
) {
	if a.Tag != want.tag || a.RingHash != want.ask.RingHash || a.Hop != uint32(want.ask.Hop) ||
		a.Atomic != want.ask.Atomic || a.Relay != want.ask.Relay || a.From != want.ask.From ||
		a.For != want.ask.For || !slices.Equal(a.Forget, want.ask.Forget) ||
		now.Add(time.Duration(a.LeftNs)) != want.ask.Deadline ||
		len(a.Items) != len(want.ask.Items) {
		t.Fatalf("generated code reads %v, want %+v", a, want)
	}
	for i, it := range a.Items {
		w := &want.ask.Items[i]
		l := frame.Limits[it.Limit]
		if string(it.Key) != w.Key || it.Cost != w.Cost || it.Op != uint32(w.Op) ||
			it.Origin != w.ID.Origin || it.Sequence != w.ID.Sequence ||
			it.Tell != w.Tell || it.Terms != uint32(termsBits(&w.Terms)) ||
			it.AtNs != int64(w.At) || it.MaxDelayNs != int64(w.MaxDelay) ||
			l.MaxDelayNs != int64(w.Limit.MaxDelay) ||
			l.Flags != uint32(limitBits(w.Limit)) || l.MaxDebt != w.Limit.MaxDebt ||
			string(l.Name) != w.Limit.Name || l.Calendar != uint32(w.Limit.Calendar) ||
			string(l.TimeZone) != w.Limit.TimeZone || string(l.Override) != w.Limit.Override ||
			l.Limit != w.Limit.Limit || l.PerNs != int64(w.Limit.Per) {
			t.Fatalf("generated code reads item %v of limit %v, want %+v", it, l, w)
		}
	}
	if w := want.ask.Trace; (len(a.Trace) == 0) != (w == cluster.Trace{}) ||
		len(a.Trace) > 0 && string(a.Trace) != string(append(w.ID[:], w.Span[:]...)) {
		t.Fatalf("generated code reads the trace %x, want %v", a.Trace, w)
	}
	if w := want.ask.Words; (a.Words == nil) != (w == nil) || w != nil &&
		len(a.Words.Said) != len(w.Said) {
		t.Fatalf("generated code reads the words %v, want %+v", a.Words, w)
	}
	if (a.Move == nil) != (want.ask.Move == nil) {
		t.Fatalf("generated code reads the move %v, want %+v", a.Move, want.ask.Move)
	}
	if m, w := a.Move, want.ask.Move; m != nil {
		if m.From != w.From || m.To != w.To || string(m.Id) != w.ID || m.Term != w.Term ||
			m.Sequence != w.Sequence ||
			string(m.Epoch.GetLineage()) != string(w.Epoch.Lineage) ||
			m.Epoch.GetNumber() != w.Epoch.Number ||
			!samePartitions(m.Claim, w.Claim) || !samePartitions(m.Begin, w.Begin) ||
			!samePartitions(m.End, w.End) ||
			!samePartitions(m.Whole, w.Whole) || !samePartitions(m.Lacking, w.Lack.Of) ||
			m.LackAgeNs != int64(w.Lack.Age) ||
			!samePartitions(m.Lent, w.Lent) || !samePartitions(m.Gift, w.Gift) ||
			len(m.Entries) != len(w.Entries) || len(m.Taken) != len(w.Taken) {
			t.Fatalf("generated code reads the move %v, want %+v", m, w)
		}
		if m.Pass != w.Pass || m.Complete != w.Complete || m.Heard != w.Heard ||
			m.StoredNs != int64(w.Stored) || m.UpNs != int64(w.Up) ||
			!slices.EqualFunc(m.Known, w.Known, func(a *peerv1.Known, b cluster.Known) bool {
				return a.Of == b.Of && a.Pass == b.Pass && samePartitions(a.Whole, b.Whole)
			}) {
			t.Fatalf("generated code reads the marks of the move %v, want %+v", m, w)
		}
		for i, e := range m.Entries {
			if string(e.Key) != w.Entries[i].Key || string(e.State) != string(w.Entries[i].State) ||
				e.AgeNs != int64(w.Entries[i].Age) ||
				string(frame.Limits[e.Limit].Name) != w.Entries[i].Limit.Name {
				t.Fatalf("generated code reads the entry %v, want %+v", e, w.Entries[i])
			}
		}
		for i, c := range m.Charges {
			x := w.Charges[i]
			if string(c.Key) != x.Key || c.Units != x.Units || c.WasReset != x.Reset ||
				string(c.State) != x.State || c.AgeNs != int64(x.Age) ||
				string(frame.Limits[c.Limit].Name) != x.Limit.Name {
				t.Fatalf("generated code reads the charge %v, want %+v", c, x)
			}
		}
		for i, h := range m.Holds {
			x := w.Holds[i]
			if string(h.Key) != x.Key || h.Units != x.Units || h.Origin != x.ID.Origin ||
				h.Sequence != x.ID.Sequence || h.LeftNs != int64(x.Left) ||
				string(h.Holder) != x.Holder || h.State != uint32(x.State) || h.Used != x.Used ||
				h.Charge != x.Charge || h.Client != x.Client ||
				string(frame.Limits[h.Limit].Name) != x.Limit.Name {
				t.Fatalf("generated code reads the hold %v, want %+v", h, x)
			}
		}
		for i, x := range m.Taken {
			y := w.Taken[i]
			if x.Origin != y.ID.Origin || x.Sequence != y.ID.Sequence ||
				x.Partition != uint32(y.Partition) || x.AgeNs != int64(y.Age) ||
				x.Decisions[0].Drained != y.Decisions[0].Drained || x.GivesBack != y.GivesBack {
				t.Fatalf("generated code reads the memory %v, want %+v", x, y)
			}
		}
	}
}

func samePartitions(a []uint32, b []uint16) bool {
	return slices.EqualFunc(a, b, func(x uint32, y uint16) bool { return x == uint32(y) })
}

func drawDecision(t *rapid.T) limiter.Decision {
	return limiter.Decision{
		Allowed:   rapid.Bool().Draw(t, "allowed"),
		Limit:     rapid.Int64Range(0, math.MaxInt64).Draw(t, "limit"),
		Remaining: rapid.Int64Range(0, math.MaxInt64).Draw(t, "remaining"),

		RetryAfter: time.Duration(rapid.Int64Range(-1, math.MaxInt64).Draw(t, "retry")),
		ResetAfter: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "reset")),
		Delay:      time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "delay")),
		Drained:    rapid.Int64Range(0, math.MaxInt64).Draw(t, "drained"),
		Session:    limiter.Millis(rapid.Int64().Draw(t, "session")),
		Restarted:  rapid.Bool().Draw(t, "restarted"),
		Hold:       limiter.HoldState(rapid.IntRange(0, 3).Draw(t, "hold")),
	}
}

func drawAnswer(t *rapid.T) *cluster.Answer {
	want := &cluster.Answer{
		RingHash: rapid.Uint64().Draw(t, "ring"), CutOff: rapid.Bool().Draw(t, "cut off"),
		Leaving: rapid.Bool().Draw(t, "leaving"),
		Passed:  rapid.Bool().Draw(t, "passed"),
		Secret:  cluster.Secret(rapid.Uint64().Draw(t, "secret")),
	}
	for range rapid.IntRange(0, 5).Draw(t, "outcomes") {
		want.Items = append(want.Items, cluster.AnswerItem{
			Status:   cluster.Status(rapid.IntRange(0, 3).Draw(t, "status")),
			Owner:    string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "owner")),
			Decision: drawDecision(t),
			Degraded: rapid.Bool().Draw(t, "degraded"), Told: rapid.Bool().Draw(t, "told"),
			Bound: rapid.Int64().Draw(t, "bound"),
		})
	}
	for range rapid.IntRange(0, len(want.Items)).Draw(t, "owners") {
		want.Owners = append(want.Owners, cluster.Member{
			ID: rapid.StringN(0, 9, 9).Draw(t, "id"), Boot: rapid.Uint64().Draw(t, "boot"),
			PeerAddr: rapid.StringN(0, 9, 9).Draw(t, "addr"),
			Features: cluster.Features(rapid.Uint64().Draw(t, "features")),
		})
	}
	if rapid.Bool().Draw(t, "move?") {
		want.Move = &cluster.MoveAnswer{
			Term: rapid.Uint64().Draw(t, "term"), Refused: drawPartitions(t, "refused"),
			Whole:   drawPartitions(t, "whole"),
			Applied: rapid.Bool().Draw(t, "applied"), Blank: rapid.Bool().Draw(t, "blank"),
			Up: time.Duration(rapid.Int64Min(0).Draw(t, "up")), Epoch: drawEpoch(t),
		}
		for range rapid.IntRange(0, 4).Draw(t, "standings") {
			want.Move.Standings = append(want.Move.Standings,
				cluster.Standing(rapid.IntRange(0, 2).Draw(t, "standing")))
		}
	}
	if rapid.Bool().Draw(t, "agreed?") {
		want.Epoch, want.Words = drawEpoch(t), drawWords(t)
	}
	return want
}

// TestRepliesAreProtobuf is the same for answers.
func TestRepliesAreProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := rapid.Uint64Min(1).Draw(t, "tag")
		want := drawAnswer(t)
		b := appendAnswer(nil, tag, want)
		b = appendRefusal(b, tag+1, "no")

		var message peerv1.Reply
		if err := proto.Unmarshal(b, &message); err != nil {
			t.Fatalf("generated code cannot read the reply: %v", err)
		}
		if a := message.Answers[1]; a.Tag != tag+1 || a.Error != "no" {
			t.Fatalf("generated code reads the refusal as %v", a)
		}
		theirs, err := proto.Marshal(&message)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b, theirs) {
			t.Fatalf("own bytes     %x\nof generated %x", b, theirs)
		}
		var tags []uint64
		if err := eachAnswer(b, func(tag uint64, b []byte) {
			tags = append(tags, tag)
			got, refusal, err := readAnswer(b, len(want.Items), new(lineageMemo))
			switch {
			case err != nil:
				t.Fatal(err)
			case refusal == "no":
			case got.RingHash != want.RingHash || !slices.Equal(got.Items, want.Items),
				!slices.Equal(got.Owners, want.Owners), !reflect.DeepEqual(got.Move, want.Move),
				got.Epoch != want.Epoch, got.Secret != want.Secret, got.Passed != want.Passed,
				!reflect.DeepEqual(got.Words, want.Words):
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(tags, []uint64{tag, tag + 1}) {
			t.Fatalf("tags %d", tags)
		}
	})
}

// frameOf is a frame of generated messages: tests break it as the codec's own writer would not.
func frameOf(t testing.TB, f *peerv1.Frame) []byte {
	t.Helper()
	b, err := proto.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func goodFrame() *peerv1.Frame {
	return &peerv1.Frame{
		Limits: []*peerv1.Limit{
			{Name: []byte("five"), Algorithm: 2, Limit: 5, PerNs: int64(time.Minute), Anchor: 1},
		},
		Asks: []*peerv1.Ask{
			{Tag: 1, Hop: 1, LeftNs: int64(time.Second), Items: []*peerv1.Item{
				{Key: []byte("a"), Cost: 1},
			}},
			{Tag: 2, Hop: 1, LeftNs: int64(time.Second), Items: []*peerv1.Item{
				{Key: []byte("b"), Cost: 1}, {Key: []byte("c"), Cost: 1},
			}},
		},
	}
}

// Promise: hostile or malformed input: a clear error, nothing charged. A broken ask is refused and
// names its field; the other asks of the frame are served.
func TestBrokenAsksAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		breaks func(f *peerv1.Frame)
		want   string
	}{
		{"no items", func(f *peerv1.Frame) { f.Asks[0].Items = nil }, "items has 0 items"},
		{
			"1001 items", func(f *peerv1.Frame) {
				f.Asks[0].Items = slices.Repeat(f.Asks[0].Items, 1001)
			}, "items[1000]: an ask has at most 1000",
		},
		{"empty key", func(f *peerv1.Frame) { f.Asks[0].Items[0].Key = nil }, "items[0].key has " +
			"0 bytes"},
		{
			"long key", func(f *peerv1.Frame) { f.Asks[0].Items[0].Key = make([]byte, 2048) },
			"items[0].key has 2048 bytes",
		},
		{"unknown op", func(f *peerv1.Frame) { f.Asks[0].Items[0].Op = 7 }, "items[0].op is 7"},
		{
			"no such limit", func(f *peerv1.Frame) { f.Asks[0].Items[0].Limit = 1 },
			"items[0].limit is 1; this frame has brought 1",
		},
		{"limit that is none", func(f *peerv1.Frame) {
			f.Limits = append(f.Limits,
				&peerv1.Limit{Name: []byte("x"), Algorithm: 2, Limit: 0, PerNs: 1e9})
			f.Asks[0].Items[0].Limit = 1
		}, "items[0].limit is 1: limit: is 0"},
		{"limit with a strange algorithm", func(f *peerv1.Frame) {
			f.Limits = append(f.Limits,
				&peerv1.Limit{Name: []byte("x"), Algorithm: 258, Limit: 1, PerNs: 1e9})
			f.Asks[0].Items[0].Limit = 1
		}, "items[0].limit is 1: algorithm"},
	} {
		f := goodFrame()
		c.breaks(f)
		asks, err := readFrame(&frameReader{known: new(door.LimitCache)}, frameOf(t, f), 0)
		if err != nil || len(asks) != 2 {
			t.Errorf("%s: %d asks, error %v", c.name, len(asks), err)
			continue
		}
		if asks[0].tag != 1 || !strings.Contains(asks[0].err, c.want) {
			t.Errorf("%s: ask %d is refused with %q, want %q", c.name, asks[0].tag, asks[0].err,
				c.want)
		}
		if asks[1].tag != 2 || asks[1].err != "" || len(asks[1].ask.Items) != 2 {
			t.Errorf("%s: the next ask suffers: %+v", c.name, asks[1])
		}
	}
}

// Promise: a frame cannot cost without bound.
func TestFrameOfTooManyAsks(t *testing.T) {
	asks, err := readFrame(&frameReader{known: new(door.LimitCache)},
		frameOf(t, &peerv1.Frame{Asks: slices.Repeat([]*peerv1.Ask{{}}, maxAsks+1)}), 0)
	if err == nil || len(asks) != maxAsks {
		t.Errorf("%d asks were handed over, error %v; want %d and an error", len(asks), err,
			maxAsks)
	}
}

// newDoor is a peer door of a node that owns everything.
func newDoor(t testing.TB) *peerDoor {
	t.Helper()
	clock := clock.New()
	lines := NewLines(LinesConfig{
		ID: "n1", Boot: 1, Clock: clock, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(lines.Close)
	node, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: clock, Network: lines,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := cluster.NewView("n1",
		[]cluster.Member{
			{ID: "n1", Boot: 1, State: cluster.StateActive},
			{ID: "n2", Boot: 2, Role: cluster.RoleAgent},
		})
	if err != nil {
		t.Fatal(err)
	}
	node.SetView(v)
	return &peerDoor{node: node, clock: clock, ending: make(chan struct{})}
}

// nowhere is a carrier of which the other end has gone.
type nowhere struct{}

func (nowhere) send([]byte) error                { return nil }
func (nowhere) receive(func([]byte) error) error { return io.EOF }
func (nowhere) hurry()                           {}

// exchangeFrame has door serve b and returns its reply.
func (d *peerDoor) exchangeFrame(t testing.TB, b []byte) *peerv1.Reply {
	t.Helper()
	e := &exchange{door: d, to: nowhere{}, frames: frameReader{
		known: &d.limits,
	}}
	if err := e.serve(b); err != nil {
		t.Fatal(err)
	}
	var reply peerv1.Reply
	if err := proto.Unmarshal(e.reply[headSize:], &reply); err != nil {
		t.Fatal(err)
	}
	return &reply
}

// Promise: nothing keeps the bytes of a frame. They are overwritten after each frame, as gRPC's
// buffers are when the next message comes; keys, names of limits and answers must not change with
// them.
func TestPoisonedFrames(t *testing.T) {
	d := newDoor(t)
	e := &exchange{door: d, to: nowhere{}, frames: frameReader{
		known: &d.limits,
	}}
	const keys = 50
	for round := range 6 {
		for k := range keys {
			f := goodFrame()
			f.Limits[0].Name = fmt.Appendf(nil, "limit-%d", k%7)
			f.Asks = f.Asks[:1]
			f.Asks[0].Items[0].Key = fmt.Appendf(nil, "some-key-%d", k)
			f.Asks[0].Items[0].Origin, f.Asks[0].Items[0].Sequence = 7, uint64(round*keys+k+1)
			b := frameOf(t, f)
			if err := e.serve(b); err != nil {
				t.Fatal(err)
			}
			for i := range b {
				b[i] = 0xdb
			}
			var reply peerv1.Reply
			if err := proto.Unmarshal(e.reply[headSize:], &reply); err != nil {
				t.Fatal(err)
			}
			o := reply.Answers[0].Outcomes[0]
			if want := max(0, int64(4-round)); o.Remaining != want || o.Allowed != (round < 5) {
				t.Fatalf("key %d, take %d: allowed %t, remaining %d; want %t, %d", k, round+1,
					o.Allowed, o.Remaining, round < 5, want)
			}
		}
	}
	if got := d.node.Table().Stats().Keys; got != keys {
		t.Errorf("the table has %d keys, want %d", got, keys)
	}
}

// Promise: a request delivered twice: 0 extra.
func TestFrameTwiceIsChargedOnce(t *testing.T) {
	d := newDoor(t)
	f := goodFrame()
	for i, a := range f.Asks {
		for k, it := range a.Items {
			it.Origin, it.Sequence = 1<<63|9, uint64(10*i+k+1)
		}
	}
	b := frameOf(t, f)
	first, second := d.exchangeFrame(t, b), d.exchangeFrame(t, b)
	for i := range first.Answers {
		for k, o := range first.Answers[i].Outcomes {
			if again := second.Answers[i].Outcomes[k]; o.Remaining != 4 || again.Remaining != 4 ||
				!again.Allowed {
				t.Errorf("ask %d, item %d: remaining %d, and %d the second time; want 4 and 4", i,
					k, o.Remaining, again.Remaining)
			}
		}
	}
}

// Promise: deadlines travel; what comes too late is not charged.
func TestExpiredFrameIsNotCharged(t *testing.T) {
	d := newDoor(t)
	late := goodFrame()
	late.Asks[0].LeftNs, late.Asks[1].LeftNs = 0, -1
	for _, a := range d.exchangeFrame(t, frameOf(t, late)).Answers {
		for _, o := range a.Outcomes {
			if o.Status != uint32(cluster.StatusExpired) {
				t.Errorf("ask %d: status %d, want %d", a.Tag, o.Status, cluster.StatusExpired)
			}
		}
	}
	if o := d.exchangeFrame(t, frameOf(t, goodFrame())).Answers[0].Outcomes[0]; o.Remaining != 4 {
		t.Errorf("after an expired take %d are left of 5, want 4 with this one", o.Remaining)
	}
}

// Promise: no bytes of a peer crash a node, and each ask that can be told from the others is
// answered.
func FuzzFrame(f *testing.F) {
	f.Add(frameOf(f, goodFrame()))
	f.Add([]byte{})
	broken := goodFrame()
	broken.Asks[0].Items[0].Limit = 9
	f.Add(frameOf(f, broken))
	moving := goodFrame()
	moving.Asks[0].Move = &peerv1.Move{
		From: 2, To: 1, Id: []byte("n2"), Term: 9, Sequence: 1, Claim: []uint32{1, 2},
		Begin: []uint32{3}, Gift: []uint32{3}, End: []uint32{4}, Lent: []uint32{5},
		Entries: []*peerv1.Entry{{Key: []byte("k"), State: []byte{8, 1, 18, 1, 2}}},
		Taken: []*peerv1.Memory{
			{Origin: 1, Sequence: 2, Decisions: []*peerv1.Outcome{{Allowed: true}}},
		},
	}
	f.Add(frameOf(f, moving))
	d := newDoor(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		e := &exchange{door: d, to: nowhere{}, frames: frameReader{
			known: &d.limits,
		}}
		err := e.serve(b)
		var reply peerv1.Reply
		if e := proto.Unmarshal(e.reply[headSize:], &reply); e != nil {
			t.Fatalf("the reply cannot be read: %v", e)
		}
		var frame peerv1.Frame
		// an ask of it may have to wait for the heir
		later := func(l *peerv1.Limit) bool { return l.Flags>>7&1 != 0 }
		if proto.Unmarshal(b, &frame) == nil && !slices.ContainsFunc(frame.Limits, later) &&
			(err != nil || len(reply.Answers) != len(frame.Asks)) {
			t.Fatalf("%d answers to %d asks, error %v", len(reply.Answers), len(frame.Asks), err)
		}
	})
}

// FuzzReply is the same for what peers answer.
func FuzzReply(f *testing.F) {
	f.Add(appendRefusal(appendAnswer(nil, 7,
		&cluster.Answer{RingHash: 1, Items: make([]cluster.AnswerItem, 3)}), 8, "no"))
	f.Fuzz(func(t *testing.T, b []byte) {
		eachAnswer(b, func(_ uint64, answer []byte) {
			if a, _, err := readAnswer(answer, 3, new(lineageMemo)); err == nil &&
				len(a.Items) > 3 {
				t.Fatalf("%d items to an ask of 3", len(a.Items))
			}
		})
	})
}

// The same for replies: what a later release puts around an answer, before it and into it, is
// skipped.
func TestRepliesOfOtherReleases(t *testing.T) {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	answer := wire.AppendUint(wire.AppendString(unknown, 100, "later"), answerTag, 5)
	unknown = protowire.AppendVarint(protowire.AppendTag(unknown, 1, protowire.VarintType), 7)
	b := append(wire.AppendHead(unknown, replyAnswers, len(answer)), answer...)
	b = appendRefusal(append(b, unknown...), 6, "no")
	var tags []uint64
	if err := eachAnswer(b, func(tag uint64, _ []byte) { tags = append(tags, tag) }); err != nil ||
		!slices.Equal(tags, []uint64{5, 6}) {
		t.Errorf("the tags are %d, error %v", tags, err)
	}
}

// oldestFrame is a frame as the first release of protocol 1 writes it: a limit, an ask of two
// items, and an ask that claims partition 7, copies an entry and gives partition 9. It must never
// change: nodes of that release may be in the cluster.
const oldestFrame = "0a130a0464656d6f100218052080b09dc2df013001122e080111030000000000" +
	"00001801288094ebdc0332101201611802290500000000000000300632071201621801200112380802180128" +
	"8094ebdc033a2c090b00000000000000110c000000000000001a026e32200d2a0107300e3a01094207120163" +
	"1a0208024a0109"

// Promise: nodes of two releases understand each other, as long as they speak one protocol: what is
// not known is skipped, what is missing is zero.
func TestFramesOfOtherReleases(t *testing.T) {
	limit := rpctest.MustLimit(limiter.Spec{
		Name: "demo", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Minute,
		Anchor: limiter.FirstHit,
	})
	var w frameWriter
	w.reset()
	w.add(1, &cluster.Ask{RingHash: 3, Hop: 1, Items: []cluster.AskItem{
		{Limit: limit, Key: "a", Cost: 1, ID: cluster.ID{Origin: 5, Sequence: 6}},
		{Limit: limit, Key: "b", Cost: -1, Op: cluster.OpPeek},
	}}, int64(time.Second))
	w.add(2, &cluster.Ask{Hop: 1, Move: &cluster.Move{
		From: 11, To: 12, ID: "n2", Term: 13,
		Claiming: cluster.Claiming{Claim: []uint16{7}},
		Copying: cluster.Copying{
			Sequence: 14, Begin: []uint16{9},
			Entries: []limiter.Entry{{Limit: limit, Key: "c", State: []byte{8, 2}}},
		},
		Giving: cluster.Giving{Gift: []uint16{9}},
	}}, int64(time.Second))
	if got := fmt.Sprintf("%x", w.buf); got != oldestFrame {
		t.Errorf("this release writes\n%s instead of\n%s", got, oldestFrame)
	}

	old, err := hex.DecodeString(oldestFrame)
	if err != nil {
		t.Fatal(err)
	}
	var later peerv1.Frame // the same with fields of a later release in every message
	if err := proto.Unmarshal(old, &later); err != nil {
		t.Fatal(err)
	}
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	unknown = protowire.AppendString(protowire.AppendTag(unknown, 100, protowire.BytesType),
		"later")
	for _, m := range []proto.Message{
		&later, later.Limits[0], later.Asks[0], later.Asks[0].Items[0], later.Asks[1].Move,
		later.Asks[1].Move.Entries[0],
	} {
		m.ProtoReflect().SetUnknown(unknown)
	}
	for name, b := range map[string][]byte{"the oldest": old, "a later": frameOf(t, &later)} {
		asks, err := readFrame(&frameReader{known: new(door.LimitCache)}, b, 0)
		if err != nil || len(asks) != 2 || asks[0].err != "" || asks[1].err != "" {
			t.Fatalf("%s release's frame: %+v, %v", name, asks, err)
		}
		items, m := asks[0].ask.Items, asks[1].ask.Move
		if len(items) != 2 || items[0].Limit.Spec != limit.Spec || items[0].Key != "a" ||
			items[0].ID.Sequence != 6 || items[1].Cost != -1 ||
			m == nil || m.From != 11 || m.Term != 13 || m.Gift[0] != 9 || m.Entries[0].Key != "c" ||
			m.Entries[0].Limit.Spec != limit.Spec {
			t.Errorf("%s release's frame is read as %+v and %+v", name, items, m)
		}
	}
}
