package peer

import (
	"math"
	"sync"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/wire"
)

// limitBits are the flags of l.
func limitBits(l *limiter.Limit) uint64 {
	silent, replicated := l.NeverDenies(), l.Consistency == limiter.Replicated
	leased, released := l.Consistency == limiter.Leased, l.Unsettled == limiter.UnsettledRelease
	return bitsOf(&l.CountRejected, &silent, &l.Strict, &l.Drain,
		&l.Lenient, &l.ClientTime, &l.Sessions, &l.Sync, &replicated, &released, &l.Unlimited,
		&leased, &l.Nameless, &l.Inline,
		&l.Planned)
}

func setLimitBits(s *limiter.Spec, v uint64) {
	var replicated, released, leased bool
	setBits(v, &s.CountRejected, &s.DryRun, &s.Strict, &s.Drain,
		&s.Lenient, &s.ClientTime, &s.Sessions, &s.Sync, &replicated, &released, &s.Unlimited,
		&leased, &s.Nameless, &s.Inline,
		&s.Planned)
	if leased {
		s.Consistency = limiter.Leased
	}
	if released {
		s.Unsettled = limiter.UnsettledRelease
	}
	if replicated {
		s.Consistency = limiter.Replicated
	}
}

// bitsOf has a bit for each flag, the first one lowest.
func bitsOf(flags ...*bool) (v uint64) {
	for i, f := range flags {
		if *f {
			v |= 1 << i
		}
	}
	return v
}

func setBits(v uint64, flags ...*bool) {
	for i, f := range flags {
		*f = v>>i&1 != 0
	}
}

// eachLimit calls do with each limit that a names, in order.
func eachLimit(a *cluster.Ask, do func(*limiter.Limit)) {
	for i := range a.Items {
		do(a.Items[i].Limit)
	}
	if m := a.Move; m != nil {
		for i := range m.Entries {
			do(m.Entries[i].Limit)
		}
		for i := range m.Charges {
			do(m.Charges[i].Limit)
		}
		for i := range m.Holds {
			do(m.Holds[i].Limit)
		}
	}
}

// bring writes l if the frame does not have it yet.
func (w *frameWriter) bring(l *limiter.Limit) {
	if w.last < len(w.limits) && w.limits[w.last] == l {
		return
	}
	i, found := w.index[l]
	if !found {
		i = len(w.limits)
		if w.index == nil {
			w.index = make(map[*limiter.Limit]int)
		}
		w.index[l] = i
		w.limits = append(w.limits, l)
		w.buf = AppendLimit(w.buf, l)
	}
	w.last = i
}

// limit is the index of l, which the frame has.
func (w *frameWriter) limit(l *limiter.Limit) uint64 {
	if w.draft {
		return anyLimit
	}
	if w.limits[w.last] != l {
		w.last = w.index[l]
	}
	return uint64(w.last)
}

// anyLimit stands for the index of a limit in a frame that is not begun yet. No frame has that
// many.
const anyLimit = math.MaxUint32

// scale finds out how large an ask is, by writing it. It knows the size of the limit of before.
type scale struct {
	frame frameWriter
	limit *limiter.Limit
	size  int
}

var scales = sync.Pool{New: func() any { return &scale{frame: frameWriter{draft: true}} }}

// weigh is the size of a frame that has nothing but a, or a little more: each limit counts as often
// as it follows another one. In a frame that has its limits already a takes less.
func weigh(a *cluster.Ask) int {
	s := scales.Get().(*scale)
	defer scales.Put(s)
	s.frame.buf = s.frame.buf[:0]
	s.frame.addAsk(math.MaxUint64, a, math.MaxInt64)
	n := len(s.frame.buf)
	var last *limiter.Limit
	eachLimit(a, func(l *limiter.Limit) {
		if l == last {
			return
		}
		if last = l; l != s.limit {
			s.limit, s.size = l, len(AppendLimit(s.frame.buf[:0], l))
		}
		n += s.size
	})
	return n
}

func AppendLimit(b []byte, l *limiter.Limit) []byte {
	b, begin := wire.Open(b, FrameLimits)
	b = wire.AppendString(b, limitName, l.Name)
	b = wire.AppendUint(b, limitAlgorithm, uint64(l.Algorithm))
	b = wire.AppendUint(b, limitLimit, uint64(l.Limit))
	b = wire.AppendUint(b, limitPer, uint64(l.Per))
	b = wire.AppendUint(b, limitBurst, uint64(l.Burst))
	b = wire.AppendUint(b, limitAnchor, uint64(l.Anchor))
	b = wire.AppendUint(b, limitFlags, limitBits(l))
	b = wire.AppendUint(b, limitMaxDebt, uint64(l.MaxDebt))
	b = wire.AppendUint(b, limitMinGap, uint64(l.MinGap))
	b = wire.AppendUint(b, limitRefill, uint64(l.Refill))
	b = wire.AppendUint(b, limitBuckets, uint64(l.Buckets))
	b = wire.AppendUint(b, limitCalendar, uint64(l.Calendar))
	b = wire.AppendString(b, limitTimeZone, l.TimeZone)
	b = wire.AppendString(b, limitOverride, l.Override)
	return wire.Close(wire.AppendUint(b, limitMaxDelay, uint64(l.MaxDelay)), begin)
}

func (r *frameReader) readLimit(b []byte) (*limiter.Limit, error) {
	s, err := ReadSpec(b)
	if err != nil {
		return nil, err
	}
	return r.known.Get(s)
}

// ReadSpec reads a limit. Its texts lie in b.
func ReadSpec(b []byte) (s limiter.Spec, err error) {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case limitName:
			s.Name = wire.Borrow(f.Bytes)
		case limitLimit:
			s.Limit = int64(f.Value)
		case limitPer:
			s.Per = time.Duration(f.Value)
		case limitBurst:
			s.Burst = int64(f.Value)
		case limitFlags:
			setLimitBits(&s, f.Value)
		case limitMaxDebt:
			s.MaxDebt = int64(f.Value)
		case limitMinGap:
			s.MinGap = time.Duration(f.Value)
		case limitRefill:
			s.Refill = int64(f.Value)
		case limitBuckets:
			s.Buckets = int(f.Value)
		case limitTimeZone:
			s.TimeZone = wire.Borrow(f.Bytes)
		case limitOverride:
			s.Override = wire.Borrow(f.Bytes)
		case limitMaxDelay:
			s.OnDeny, s.MaxDelay = limiter.DenyDelay, time.Duration(f.Value)
		default:
			setLimitKind(&s, &f)
		}
	}
	return s, f.Err
}

// setLimitKind reads the fields that say by a number which kind of limit it is. One that this
// release does not know stays unknown.
func setLimitKind(s *limiter.Spec, f *wire.Fields) {
	kind := uint8(min(f.Value, math.MaxUint8))
	switch f.Num {
	case limitAlgorithm:
		s.Algorithm = limiter.Algorithm(kind)
	case limitAnchor:
		s.Anchor = limiter.Anchor(kind)
	case limitCalendar:
		s.Calendar = limiter.Calendar(kind)
	}
}
