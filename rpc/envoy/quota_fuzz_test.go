package envoy

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"penstock/rpc/door"
)

// fleet is one input of FuzzQuotaStream: Envoys that share a bucket and say what they do, beside
// one that says anything.
type fleet struct {
	door   *Door
	clock  *hand
	left   []byte
	honest [3]*anEnvoy
	liar   *quotas
	user   string // in the bucket of the honest ones
	late   bool   // a report came so late that a lease had run out
	free   int64  // what the honest have admitted without a lease, and say
	cut    bool   // … when there was less than that
}

const (
	stepsOfFleet = 64
	leased       = 100 // the limit of the bucket
	// inTime is the longest between two reports that no lease runs out by.
	inTime = time.Second
)

func newFleet(d *Door, clock *hand, run int, in []byte) *fleet {
	f := &fleet{door: d, clock: clock, left: in, user: fmt.Sprint("honest", run)}
	clock.set((f.now()/time.Hour + 1) * time.Hour)
	for i := range f.honest {
		f.honest[i] = &anEnvoy{q: f.stream(), user: f.user, reported: f.now()}
	}
	f.liar = f.stream()
	return f
}

func (f *fleet) stream() *quotas {
	return &quotas{door: f.door, buckets: map[string]*bucket{}}
}

func (f *fleet) now() time.Duration { return time.Duration(f.clock.Now()) }

func (f *fleet) byte() (b byte) {
	if len(f.left) > 0 {
		b, f.left = f.left[0], f.left[1:]
	}
	return b
}

// number is small, or as far off as it can be.
func (f *fleet) number() uint64 {
	b := f.byte()
	if b < 128 {
		return uint64(b)
	}
	return math.MaxUint64 >> (b & 63)
}

// pass lets time pass. Messages meet their Envoys when they arrive.
func (f *fleet) pass(t *testing.T, d time.Duration) {
	f.clock.set(f.now() + d)
	for _, e := range f.honest {
		for len(e.coming) > 0 && e.coming[0].at <= f.now() {
			e.meet(t, e.coming[0].at)
		}
		f.late = f.late || f.now() > e.reported+inTime && len(e.q.buckets) > 0
	}
}

// play lets a script happen.
func (f *fleet) play(t *testing.T) {
	for range stepsOfFleet {
		if len(f.left) == 0 {
			break
		}
		b := f.byte()
		e := f.honest[int(b>>4)%len(f.honest)]
		switch b & 7 {
		case 0:
			f.pass(t, time.Duration(f.byte())*3*time.Millisecond)
		case 1:
			f.pass(t, time.Duration(f.byte()&31)*time.Second)
		case 2:
			e.meet(t, f.now())
			for range f.byte() & 31 {
				e.request(f.now())
			}
		case 3:
			n := f.byte() & 15
			e.allowed, f.free = e.allowed+uint64(n), f.free+int64(n)
		case 4, 5:
			e.meet(t, f.now())
			f.cut = f.cut || f.free > 0 && f.look(t) < int64(e.allowed)
			e.report(t, f.now(), time.Duration(f.byte())*3*time.Millisecond)
		case 6:
			f.lie(t, f.said())
		case 7:
			f.lie(t, f.raw())
		}
	}
	f.judge(t)
}

// said is a report about buckets of the liar's, with numbers that may be anything.
func (f *fleet) said() *quotav3.RateLimitQuotaUsageReports {
	in := &quotav3.RateLimitQuotaUsageReports{Domain: [...]string{"q", "", "r", "q"}[f.byte()&3]}
	for range f.byte() & 3 {
		id := [...]*quotav3.BucketId{
			quotaBucket("user", "liar"), quotaBucket("a", "1", "b", "2"), quotaBucket("open", "x"),
			quotaBucket("shut", "x"), quotaBucket("dry", "x"), quotaBucket("nobody", "x"),
			quotaBucket(), nil,
		}[f.byte()&7]
		u := usage(id, time.Duration(f.number()), f.number(), f.number())
		if f.byte()&1 != 0 {
			u.TimeElapsed = &durationpb.Duration{
				Seconds: int64(f.number()), Nanos: int32(f.number()),
			}
		}
		in.BucketQuotaUsages = append(in.BucketQuotaUsages, u)
	}
	return in
}

// raw is a report of the script's own bytes; nil: they are none, or one about the honest.
func (f *fleet) raw() *quotav3.RateLimitQuotaUsageReports {
	b := f.left[:min(len(f.left), int(f.byte()))]
	f.left = f.left[min(len(f.left), len(b)):]
	in := new(quotav3.RateLimitQuotaUsageReports)
	if bytes.Contains(b, []byte("honest")) || proto.Unmarshal(b, in) != nil {
		return nil
	}
	return in
}

// lie has the liar report. A refusal ends its stream. Else no bucket is answered that it has not
// named, and none more often.
func (f *fleet) lie(t *testing.T, in *quotav3.RateLimitQuotaUsageReports) {
	if in == nil {
		return
	}
	out, err := f.liar.hear(in)
	if err != nil {
		if c := status.Code(door.StatusError(err)); c != codes.InvalidArgument {
			t.Fatalf("%v is refused by %v", in, err)
		}
		f.liar = f.stream()
		return
	}
	next := 0
	for _, a := range out.BucketAction {
		for next < len(in.BucketQuotaUsages) &&
			!proto.Equal(in.BucketQuotaUsages[next].BucketId, a.BucketId) {
			next++
		}
		if next++; next > len(in.BucketQuotaUsages) {
			t.Fatalf("%v is answered by %v", in, out)
		}
		if a.BucketId.Validate() != nil {
			continue // it comes back as it was sent
		}
		if word, tokens, lasts := said(t, a); word == "lease" &&
			(tokens < 1 || tokens > leased || lasts < leaseAtLeast || lasts > leaseLongest) {
			t.Fatalf("%v is answered by %v", in, out)
		}
	}
}

// look is what is left of the bucket of the honest.
func (f *fleet) look(t *testing.T) int64 {
	free := request("q", "user", f.user)
	free.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	out, err := f.door.ShouldRateLimit(context.Background(), free)
	if err != nil {
		t.Fatal(err)
	}
	return int64(out.Statuses[0].LimitRemaining)
}

// judge has the honest Envoys report until their buckets are let go. All that they have admitted is
// charged; and nothing else, unless a lease has run out.
func (f *fleet) judge(t *testing.T) {
	admitted := int64(0)
	for _, e := range f.honest {
		admitted += e.total
	}
	if admitted > leased+f.free { // what one admits without its lease is charged to the lease
		t.Fatalf("%d of %d were admitted by leases, and %d without", admitted, leased, f.free)
	}
	for told := true; told; {
		told = false
		f.pass(t, inTime)
		for _, e := range f.honest {
			if e.allowed > 0 || len(e.q.buckets) > 0 { // else it is let go, and not told of
				f.cut = f.cut || f.free > 0 && f.look(t) < int64(e.allowed)
				e.report(t, f.now(), 0)
				e.coming, told = nil, true
			}
		}
	}
	left, want := f.look(t), leased-admitted-f.free
	if !f.cut && (left > want || left < want && !f.late) {
		t.Fatalf("%d are left after %d of %d were admitted by leases and %d without; late: %v",
			left, admitted, leased, f.free, f.late)
	}
}

// Promise: whatever comes on a stream of reports, each is answered, about the buckets that it names
// alone, or refused as the fault of its sender; and what honest Envoys admit beside it is at most
// the limit, and is what they are charged for.
func FuzzQuotaStream(f *testing.F) {
	const pass, late, ask, free, tell, lie, raw, second = 0, 1, 2, 3, 4, 6, 7, 1 << 4
	f.Add([]byte{
		tell, 0, ask, 9, tell, 100, pass, 200, tell | second, 3, ask | second, 31, tell, 0,
	})
	f.Add([]byte{
		tell, 0, ask, 31, ask, 31, tell, 0, ask, 31, tell, 0, ask, 31, tell, 0, ask, 31, tell, 0,
		tell | second, 0, ask | second, 31, tell | second, 0, ask | second, 31,
	})
	f.Add([]byte{tell, 0, ask, 3, late, 20, ask, 3, tell, 0, ask, 3, late, 31, tell, 0})
	f.Add(slices.Concat(bytes.Repeat([]byte{tell, 0, ask, 31}, 10),
		bytes.Repeat([]byte{pass, 250, tell, 0}, 16), bytes.Repeat([]byte{tell, 0, ask, 31}, 6)))
	f.Add([]byte{free, 9, tell, 0, ask, 3, free, 5, tell, 0, tell | second, 0, free | second, 15})
	f.Add(slices.Concat([]byte{tell, 0, ask, 20, tell, 0, ask, 2},
		[]byte{pass, 250, tell, 0, pass, 250, tell, 0, pass, 250, tell, 255},
		bytes.Repeat([]byte{tell | second, 0, ask | second, 31}, 20), []byte{ask, 31}))
	f.Add([]byte{lie, 0, 1, 0, 156, 9, 9, 0})
	for id := range byte(8) {
		f.Add([]byte{
			lie, 0, 1, id, 100, 3, 4, 0, lie, 1, 2, id, 255, 128, 129, 1, 128, 128, id, 0, 0, 0, 0,
			lie, 0, 1, id, 156, 9, 9, 0, lie, 0, 1, id, 129, 9, 9, 0, lie, 2, 1, id, 1, 1, 1, 0,
		})
	}
	b, err := proto.Marshal(&quotav3.RateLimitQuotaUsageReports{
		Domain: "q", BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			usage(quotaBucket("user", "y"), time.Second, 3, 4),
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{raw, byte(len(b))}, b...))
	f.Add(append([]byte{raw, byte(len(b) - 1)}, b...))
	var d *Door
	var clock *hand
	run := 0
	f.Fuzz(func(t *testing.T, in []byte) {
		if run++; run%512 == 1 {
			d, clock = alone(t, quotaLimits)
		}
		newFleet(d, clock, run, in).play(t)
	})
}
