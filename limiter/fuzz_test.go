package limiter_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"penstock/limiter"
)

// input reads numbers from fuzzed bytes; at their end it reads zeros.
type input []byte

func (in *input) number(bytes int) uint64 {
	var b [8]byte
	*in = (*in)[copy(b[:bytes], *in):]
	return binary.LittleEndian.Uint64(b[:])
}

func (in *input) spec() limiter.Spec {
	s := limiter.Spec{
		Name: "fuzz", Algorithm: limiter.Algorithm(in.number(1)), Limit: int64(in.number(6)), Per: time.Duration(in.number(7)),
	}
	if x := in.number(1); s.Algorithm == limiter.GCRA && x&1 == 1 {
		s.Burst = int64(in.number(6))
	} else if s.Algorithm == limiter.FixedWindow {
		s.Anchor, s.CountRejected = limiter.Anchor(x>>1&1), x&4 == 4
	}
	return s
}

// FuzzNew: no Spec panics, and what is accepted decides sanely.
func FuzzNew(f *testing.F) {
	f.Add("login", byte(1), int64(10), int64(time.Minute), int64(0), byte(0), false)
	f.Add("", byte(9), int64(-1), int64(1), int64(1)<<62, byte(3), true)
	f.Fuzz(func(t *testing.T, name string, algorithm byte, limit, per, burst int64, anchor byte, count bool) {
		l, err := limiter.New(limiter.Spec{
			Name: name, Algorithm: limiter.Algorithm(algorithm), Limit: limit, Per: time.Duration(per), Burst: burst,
			Anchor: limiter.Anchor(anchor), CountRejected: count,
		})
		if err != nil {
			if bad := new(limiter.SpecError); l != nil || !errors.As(err, &bad) || bad.Field == "" || bad.Reason == "" {
				t.Fatalf("%v, %v", l, err)
			}
			return
		}
		for _, l := range []*limiter.Limit{l, l.Share(3)} {
			table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
			all := table.Take(start, l, "k", 1, l.Capacity())
			if !all.Allowed || all.Remaining != 0 || all.Limit != l.Capacity() || all.ResetAfter < 0 {
				t.Fatalf("%+v: the whole capacity: %+v", l.Spec, all)
			}
			one := table.Take(start, l, "k", 1, 1)
			if one.Allowed || one.RetryAfter <= 0 || one.RetryAfter > 2*l.Per+1 {
				t.Fatalf("%+v: one more: %+v", l.Spec, one)
			}
		}
	})
}

// FuzzTake: any requests, clocks and changes of a limit are answered as by the naive limiter.
func FuzzTake(f *testing.F) {
	f.Add([]byte{1, 10, 0, 0, 0, 0, 0, 0, 0xca, 0x9a, 0x3b, 0, 0, 0, 0, 1, 1, 0})
	f.Add([]byte{2, 3, 0, 0, 0, 0, 0, 0, 0xca, 0x9a, 0x3b, 0, 0, 0, 6, 1, 1, 0, 1, 2, 0, 1, 3, 0})
	f.Add([]byte{3, 7, 0, 0, 0, 0, 0, 0, 0xca, 0x9a, 0x3b, 0, 0, 0, 0, 1, 5, 1, 1, 3, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := input(data)
		spec := in.spec()
		l, err := limiter.New(spec)
		if err != nil {
			return
		}
		table, believed := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1}), naive{}
		now := start
		for n := 0; len(in) > 0 && n < 64; n++ {
			op := in.number(1)
			if op&1 == 0 {
				now += limiter.Instant(int64(in.number(7)<<8) >> 8 % (4 * int64(spec.Per)))
			}
			cost := int64(int8(in.number(1)))
			if op&2 == 0 {
				cost = int64(in.number(8))
			}
			if op&12 == 12 {
				next := in.spec()
				next.Algorithm, next.Per, next.Anchor = spec.Algorithm, spec.Per, spec.Anchor
				if other, err := limiter.New(next); err == nil {
					spec, l = next, other
				}
			}
			compare(t, table, believed, now, l, spec, drawnKeys[op>>4%3], cost, op&128 != 0)
		}
	})
}
