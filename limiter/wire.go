package limiter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The binary form of a state is what travels between nodes and lies on disks. It is a protobuf
// message, so that another program can read it and a later one can add to it:
//
//	message State {
//	  uint32 algorithm = 1;
//	  repeated sint64 words = 2; // packed
//	  bool client_millis = 3;    // times of clients are in ms; without it, in ns
//	}
//
// Instants among the words are relative to the sender's now: clocks of two nodes may differ by
// hours, and a state that was on its way for d arrives d too late, which admits too little, never
// too much. A window that is aligned to the epoch is laid on a boundary of the reader's clock
// (land), so the way there does not push it into the next one. Fields that are not known are
// skipped, words too many are dropped, words too few are zero.
const (
	wireAlgorithm = 1 << 3   // field 1, varint
	wireWords     = 2<<3 | 2 // field 2, bytes
	wireMillis    = 3 << 3   // field 3, varint
)

var errState = errors.New("limiter: a state in binary form is cut off or broken")

// appendState appends the binary form of w, the state of a key under l at now. A key never seen has
// none. It changes w.
func (l *Limit) appendState(b []byte, w []int64, now Instant) []byte {
	if l.fresh(w, now) {
		return b
	}
	if l.Algorithm == SlidingLog {
		(*slidingLogLimit)(l).settle(w, now)
		w = w[:1+logOf(w).n] // what of the ring is not in use stays here
	}
	l.shift(w, -int64(now))
	size := 0
	for _, x := range w {
		size += uvarintLen(zigzag(x))
	}
	b = append(b, wireAlgorithm, byte(l.Algorithm))
	if l.ClientTime {
		b = append(b, wireMillis, 1)
	}
	b = append(b, wireWords)
	b = binary.AppendUvarint(b, uint64(size))
	for _, x := range w {
		b = binary.AppendUvarint(b, zigzag(x))
	}
	return b
}

// readState reads into w, of l.words() words, the state under l at now that b is the binary form
// of. The state of another algorithm is none of l's: it is that of a key never seen, and says so by
// same.
func (l *Limit) readState(w []int64, b []byte, now Instant) (same bool, err error) {
	clear(w)
	same = true
	var words []int64
	millis := false
	for len(b) > 0 {
		var f stateField
		if f, b = nextField(b); b == nil {
			return same, errState
		}
		switch f.tag {
		case wireAlgorithm:
			same = Algorithm(f.value) == l.Algorithm && f.value < 256
		case wireMillis:
			millis = f.value != 0
		case wireWords:
			if words, err = readWords(words[:0], f.body); err != nil {
				return same, err
			}
		}
	}
	if !same || len(words) == 0 {
		return same, nil
	}
	if l.ClientTime && !millis {
		(*clientBucketLimit)(l).toMillis(words)
	}
	l.shift(words, int64(now))
	l.land(words, now)
	l.refit(w, words)
	settled := make([]int64, len(w))
	l.merge(settled, w, now) // settles what it takes over
	copy(w, settled)
	return same, nil
}

// stateField is a field of a State: value of a varint, body of a field that says its length.
type stateField struct {
	tag, value uint64
	body       []byte
}

// nextField reads the first field of b, and returns what follows it; nil if b is broken.
func nextField(b []byte) (f stateField, rest []byte) {
	tag, n := binary.Uvarint(b)
	if n <= 0 {
		return f, nil
	}
	b, f.tag = b[n:], tag
	switch n = 0; tag & 7 {
	case 0:
		f.value, n = binary.Uvarint(b)
	case 1:
		n = 8
	case 2:
		size, k := binary.Uvarint(b)
		if k <= 0 || size > uint64(len(b)-k) {
			return f, nil
		}
		n = k + int(size)
		f.body = b[k:n]
	case 5:
		n = 4
	}
	if n <= 0 || n > len(b) {
		return f, nil
	}
	return f, b[n:]
}

// readWords appends the words of a state; those beyond the longest state there is are dropped.
func readWords(words []int64, b []byte) ([]int64, error) {
	for len(b) > 0 && len(words) <= maxWords {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errState
		}
		words, b = append(words, int64(x>>1)^-int64(x&1)), b[n:]
	}
	return words, nil
}

// toMillis turns the times of clients among words from nanoseconds into milliseconds: a file of
// counters may be older than the change of their unit. A mark is rounded up: it refills no earlier.
func (l *clientBucketLimit) toMillis(words []int64) {
	up := func(i int) {
		if i < len(words) {
			words[i] = -floorTo(-words[i], int64(time.Millisecond)) / int64(time.Millisecond)
		}
	}
	up(1)
	if l.Sessions {
		up(askedAt + 1)
	}
}

// maxWords is the length of the longest state there is.
const maxWords = 2 + max(MaxLog, MaxBuckets)

func zigzag(x int64) uint64 { return uint64(x)<<1 ^ uint64(x>>63) }

func uvarintLen(x uint64) int {
	n := 1
	for ; x >= 0x80; x >>= 7 {
		n++
	}
	return n
}

// shift moves all instants of the state w by ns.
func (l *Limit) shift(w []int64, ns int64) {
	first, last, step := 0, 0, 1
	switch l.Algorithm {
	case TokenBucket:
		first, last = 1, len(w)
		// the mark and the session are times of the clients, which are the same everywhere
		if l.ClientTime {
			first, last = askedAt, askedAt
		}
	case SlidingLog:
		first, last = 1, len(w)
	case StatedWindow:
		last, step = 2, 2
	case StatedBucket:
		last, step = 3, 3
	}
	for i := first; i <= last && i < len(w); i += step {
		w[i] = int64(Instant(w[i]).Add(time.Duration(ns)))
	}
}

// land lays a state that has just been shifted, and was in force at now, on the boundaries of this
// clock.
func (l *Limit) land(w []int64, now Instant) {
	switch {
	case l.Algorithm == TokenBucket && l.Anchor == Epoch && len(w) > 1:
		if !l.ClientTime {
			w[1] = nearest(w[1], int64(l.Per))
		}
	case l.Algorithm == StatedWindow: // its end stands there, and it began when somebody came
		if l.zone != nil && len(w) == statedWindowWords {
			(*statedWindowLimit)(l).land(w, now)
		}
	case l.zone != nil:
		t := min(max(w[0], int64(earliest)), int64(latest))
		if start, end := (*fixedWindowLimit)(l).windowOf(t); end-t <= t-start {
			w[0] = end
		} // else it counts from the start of the window that it lies in
	case l.Algorithm == FixedWindow && l.Anchor == Epoch, l.Algorithm == SlidingWindow:
		w[0] = landWindow(w[0], int64(now), int64(l.Per))
	case l.Algorithm == SlidingCounter, l.Algorithm == Concurrency:
		w[0] = landPart(w[0], int64(now), l.step)
	}
}

// landWindow is where a window begins on this clock that began at t on another one, and is in force
// there at now. Of clocks in step it is the boundary that both have. Else it is the window in which
// t lies, if that is in force at now as well: all that was charged lies in it. If it is not, nobody
// knows how much lies in the one of now, so that gets all. So a window never begins anew because
// its key has come to another clock.
func landWindow(t, now, per int64) int64 {
	t = min(max(t, int64(earliest)), int64(latest))
	if boundary, shared := sharedBoundary(t, per); shared {
		return boundary
	}
	if start := floorTo(t, per); now < start+per {
		return start
	}
	return floorTo(now, per)
}

// landPart is where a sub-window begins on this clock that began at t on another one: at the
// boundary that both have, if they are in step, else at the next one, but no later than the first
// after now, before which all was charged. So nothing is over earlier than on the other clock, and
// a key that comes to other clocks again and again is not counted for longer each time.
func landPart(t, now, step int64) int64 {
	t = min(max(t, int64(earliest)), int64(latest))
	if boundary, shared := sharedBoundary(t, step); shared {
		return boundary
	}
	return floorTo(min(t, now), step) + step
}

// sharedBoundary is the multiple of step that is nearest to t, which was one on another clock, and
// whether the two clocks are in step.
func sharedBoundary(t, step int64) (boundary int64, shared bool) {
	boundary = floorTo(t+step/2, step)
	apart := t - boundary
	return boundary, max(apart, -apart) <= min(int64(inStep), step/8)
}

// inStep is by how much clocks in step differ at most, with the way of a message on top.
const inStep = time.Second

// nearest is the multiple of step that is nearest to t, within the bounds of all instants.
func nearest(t, step int64) int64 {
	t = min(max(t, int64(earliest)), int64(latest))
	return floorTo(t+step/2, step)
}

// EncodeState is the binary form of words, the state of a key under l at now, as Each gives them.
// It is empty for a key that is as good as never seen.
func (l *Limit) EncodeState(words []int64, now Instant) []byte {
	w, settled := make([]int64, l.words()), make([]int64, l.words())
	l.refit(w, words)
	l.merge(settled, w, within(now))
	return l.appendState(nil, settled, within(now))
}

// DecodeState is the state under l at now that b is the binary form of, as Merge takes it. A state
// of another algorithm is an error, as is one that is cut off.
func (l *Limit) DecodeState(b []byte, now Instant) ([]int64, error) {
	w := make([]int64, l.words())
	same, err := l.readState(w, b, within(now))
	if err == nil && !same {
		err = fmt.Errorf("limiter: the state of another algorithm is none of the %v %q; the key "+
			"begins anew", l.Algorithm, l.Name)
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}
