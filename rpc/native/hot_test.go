package native

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
	"penstock/rpc/notation"
	"penstock/rpc/rpctest"
	"penstock/rpc/wire"
)

var hotRequests = []proto.Message{&penstockv1.CheckRequest{}, &penstockv1.CheckStreamRequest{}}

// TestHotMessagesAreTheLibrarys: what is written by hand is what the library writes, and what is
// read by hand is what it reads; with every field there is, so a new one that the hand forgets
// fails here.
func TestHotMessagesAreTheLibrarys(t *testing.T) {
	c := wire.NewCodec()
	for _, items := range []int{0, 1, 2, 3, 300} {
		for _, number := range []int64{0, 1, -1, 127, 128, math.MaxInt64, math.MinInt64} {
			for _, text := range []string{"", "alice", strings.Repeat("ä", 100)} {
				for _, of := range hotRequests {
					bytes, err := proto.Marshal(rpctest.Filled(of, items,
						rpctest.ValueOf(number, text)))
					if err != nil {
						t.Fatal(err)
					}
					checkRead(t, of, bytes)
				}
				decided := &streamCall{
					checkCall: checkCall{out: decisions(items, number, text)},
					tag:       uint64(number),
				}
				rpctest.CheckWritten(t, decided.response(), decided.checkCall.write, c)
				rpctest.CheckWritten(t, &penstockv1.CheckStreamResponse{
					Tag:   decided.tag,
					Check: decided.response(),
				}, decided.write, c)
			}
		}
	}
}

// decisions are n with every field set, of two limits and two owners in turns.
func decisions(n int, number int64, text string) []cluster.Decision {
	one, other := &limiter.Limit{}, &limiter.Limit{}
	one.Name, one.Override, other.Name = text, text, "other"
	small := int(int32(number))
	one.Answers = limiter.Answers{
		Status: small, Body: text, ContentType: text, Tag: text, Tier: small,
	}
	out := make([]cluster.Decision, n)
	for i := range out {
		d := &out[i]
		d.Decision = limiter.Decision{
			Allowed: number != 0, Limit: number, Remaining: number,
			RetryAfter: time.Duration(number), ResetAfter: time.Duration(number),
			Delay: time.Duration(number), Drained: number, Session: limiter.Millis(number),
			Restarted: number != 0,
		}
		d.Rule, d.Owner, d.Source = one, text, cluster.SourceDenied
		d.Degraded, d.Bound, d.Shadow, d.Over = number != 0, number, number != 0, i%2 == 0
		switch i % 7 {
		case 2:
			d.Rule = other
		case 3:
			d.Owner = "n2"
		case 4, 5:
			d.Decision, d.Degraded, d.Bound, d.Shadow = limiter.Decision{
				Allowed: true,
				Limit:   number,
			}, false, 0, false
		case 6:
			d.Allowed = false
		}
	}
	return out
}

// TestEveryFieldIsEncoded: a Decision of the protocol says all that it can.
func TestEveryFieldIsEncoded(t *testing.T) {
	all := notation.Decisions(decisions(7, int64(time.Hour)+1, "alice"))
	fields := all[0].ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		says := func(d *penstockv1.Decision) bool { return d.ProtoReflect().Has(fields.Get(i)) }
		if !slices.ContainsFunc(all, says) {
			t.Errorf("%s is never said", fields.Get(i).Name())
		}
	}
}

// checkRead: b is read as the library reads it, or refused as it refuses it, and then b is free for
// others.
func checkRead(t *testing.T, of proto.Message, b []byte) {
	t.Helper()
	want := of.ProtoReflect().New().Interface()
	call := map[proto.Message]wire.Call{
		hotRequests[0]: new(checkCall),
		hotRequests[1]: new(streamCall),
	}[of]
	if !rpctest.CheckReadBy(t, call, want, b) {
		return
	}
	switch c := call.(type) {
	case *checkCall:
		checkAsked(t, c, want.(*penstockv1.CheckRequest))
	case *streamCall:
		in := want.(*penstockv1.CheckStreamRequest)
		if c.tag != in.Tag || c.timeoutMs != in.TimeoutMs {
			t.Fatalf("%x: tag %d and %d ms, want %v", b, c.tag, c.timeoutMs, in)
		}
		if in.Check == nil {
			in.Check = new(penstockv1.CheckRequest)
		}
		checkAsked(t, &c.checkCall, in.Check)
	}
}

// checkAsked: c asks what the library reads as want.
func checkAsked(t *testing.T, c *checkCall, want *penstockv1.CheckRequest) {
	t.Helper()
	if c.in != nil {
		if !proto.Equal(c.in, want) {
			t.Fatalf("read %v, want %v", c.in, want)
		}
		return
	}
	var other checkCall
	if err := other.decode(want.Items, cluster.OpTake, new(door.Inlines)); err != nil {
		t.Fatalf("read by hand, and %v: %v", want, err)
	}
	if !reflect.DeepEqual(c.request, other.request) || len(c.out) != len(want.Items) {
		t.Fatalf("read %+v, want %+v", c.request, other.request)
	}
	if !proto.Equal(want, &penstockv1.CheckRequest{Items: want.Items}) {
		t.Fatalf("read by hand, although there is more than items: %v", want)
	}
}

// TestHotReadersLeaveTheRestToTheLibrary: messages as no client of ours writes them.
func TestHotReadersLeaveTheRestToTheLibrary(t *testing.T) {
	for name, b := range rpctest.OddMessages() {
		t.Run(name, func(t *testing.T) {
			for _, of := range hotRequests {
				checkRead(t, of, b)
				// and as a request on a stream
				checkRead(t, of, append([]byte{1 << 3, 9}, protowire.AppendBytes([]byte{2<<3 | 2},
					b)...))
			}
		})
	}
}

// TestHotWriterRefusesWhatTheLibraryRefuses: text that is none.
func TestHotWriterRefusesWhatTheLibraryRefuses(t *testing.T) {
	decided := checkCall{out: decisions(1, 1, "\xff")}
	for _, write := range []func(wire.Codec) (mem.BufferSlice, error){
		decided.write, (&streamCall{checkCall: decided}).write,
	} {
		if b, err := write(wire.NewCodec()); err == nil {
			t.Errorf("%x is written", b.Materialize())
		}
	}
}

func FuzzHotRequests(f *testing.F) {
	for _, of := range hotRequests {
		b, err := proto.Marshal(rpctest.Filled(of, 2, rpctest.ValueOf(300, "alice")))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, of := range hotRequests {
			checkRead(t, of, b)
		}
	})
}
