package limiter

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Promise: when a state moves to another clock, each instant of the table among its words moves,
// and nothing else: no count, no time of clients.
func TestShiftsInPlainWords(t *testing.T) {
	for _, row := range []struct {
		of    Spec
		moves []int // of words 0 to 4
	}{
		{Spec{Algorithm: GCRA}, []int{0}},
		{Spec{Algorithm: LeakyBucket}, []int{0}},
		{Spec{Algorithm: FixedWindow}, []int{0}},
		{Spec{Algorithm: SlidingWindow}, []int{0}},
		{Spec{Algorithm: SlidingCounter}, []int{0}},
		{Spec{Algorithm: Concurrency}, []int{0}},
		{Spec{Algorithm: SlidingLog}, []int{1, 2, 3, 4}},
		{Spec{Algorithm: TokenBucket}, []int{1, 2, 3, 4}},
		{Spec{Algorithm: TokenBucket, ClientTime: true}, []int{2}},
		{Spec{Algorithm: StatedWindow}, []int{0, 2}},
		{Spec{Algorithm: StatedBucket}, []int{0, 3}},
	} {
		row.of.Name, row.of.Limit, row.of.Per = "l", 7, 60*time.Second
		l := mustBe(New(row.of))
		for n := range 6 {
			if row.of.Algorithm == StatedWindow && n > 3 {
				break // it has three words
			}
			w, want := []int64{1, 20, 300, 4000, 50000}[:min(n, 5)], []int64(nil)
			for i, x := range w {
				if slices.Contains(row.moves, i) {
					x -= 7
				}
				want = append(want, x)
			}
			if l.shift(w, -7); !slices.Equal(w, want) {
				t.Errorf("%d words of %+v become %v, want %v", n, row.of, w, want)
			}
		}
	}
}

// Promise: clocks that differ by a second at most, and by an 8th of a step, are in step. On one
// that is, a boundary is the nearest one. On another one a window begins where t lies, if that is
// in force now, and else where now lies; a part begins at the next boundary after t or now.
func TestLandingsInPlainWords(t *testing.T) {
	inPace, out := 0, 0
	for seed := range uint64(40000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		step := oneOf[int64](draw, 8, 16, 80, 8e9, 80e9, 7e9)
		now := oneOf[int64](draw, 0, -5, 1e18) + draw.Int64N(3*step)
		boundary := floorTo(now, step) + step*int64(draw.IntN(5)-2)
		far := min(step/8, int64(time.Second))
		at := boundary + oneOf(draw, 0, 1, -1, far, -far, far+1, -far-1, draw.Int64N(step))
		before := at
		for before%step != 0 { // the boundary before it, or itself
			before -= (before%step + step) % step
		}
		nearest := before
		if at-before > before+step-at {
			nearest += step
		}
		window, part := before, min(before, floorTo(now, step))+step
		if now >= before+step {
			window = floorTo(now, step)
		}
		if apart := max(at-nearest, nearest-at); apart <= far {
			window, part = nearest, nearest
			inPace++
		} else {
			out++
		}
		if got := landWindow(at, now, step); got != window {
			t.Fatalf("seed %d: a window from %d lands on %d at %d, want %d", seed, at, got, now,
				window)
		}
		if got := landPart(at, now, step); got != part {
			t.Fatalf("seed %d: a part from %d lands on %d at %d, want %d", seed, at, got, now, part)
		}
	}
	if inPace < 1000 || out < 1000 {
		t.Errorf("%d in step, %d not; that proves little", inPace, out)
	}
}

// wireField is a field of a state in binary form.
type wireField struct {
	bytes []byte
	// what it says: the algorithm, whether times of clients are in ms, or words
	algorithm int64
	millis    int
	words     []int64
}

func drawnField(draw *rand.Rand, l *Limit) wireField {
	f := wireField{algorithm: -1, millis: -1}
	number := uint64(7 + draw.IntN(40))
	switch draw.IntN(9) {
	case 0:
		f.algorithm = oneOf(draw, int64(l.Algorithm), int64(l.Algorithm), 1, 0, 256+
			int64(l.Algorithm))
		f.bytes = binary.AppendUvarint([]byte{1 << 3}, uint64(f.algorithm))
	case 1:
		f.millis = draw.IntN(3)
		f.bytes = []byte{3 << 3, byte(f.millis)}
	case 2, 3, 4:
		var body []byte
		f.words = []int64{}
		for range draw.IntN(5) {
			x := oneOf(draw, draw.Int64N(200)-100, draw.Int64()>>draw.IntN(60), math.MinInt64)
			f.words = append(f.words, x)
			body = binary.AppendVarint(body, x)
		}
		f.bytes = append([]byte{2<<3 | 2, byte(len(body))}, body...)
	case 5:
		f.bytes = binary.AppendUvarint(binary.AppendUvarint(nil, number<<3), draw.Uint64())
	case 6:
		f.bytes = append(binary.AppendUvarint(nil, number<<3|1), make([]byte, 8)...)
	case 7:
		f.bytes = append(binary.AppendUvarint(nil, number<<3|2), 3, 'a', 'b', 'c')
	default:
		f.bytes = append(binary.AppendUvarint(nil, number<<3|5), make([]byte, 4)...)
	}
	return f
}

// Promise: of the fields of a state the last of each counts, and those that are not known are
// skipped; what is cut off within a field is an error; a field of a kind that is not known, too.
func TestFieldsOfStatesInPlainWords(t *testing.T) {
	read, cut := 0, 0
	for seed := range uint64(40000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s := Spec{Name: "l", Algorithm: TokenBucket, Limit: 50, Per: 7 * time.Millisecond}
		s.ClientTime, s.Anchor = draw.IntN(2) == 0, FirstHit
		s.Sessions = s.ClientTime && draw.IntN(2) == 0
		l, now := mustBe(New(s)), Instant(draw.Int64N(1000))
		var b []byte
		var ends []int
		same, millis, words := true, false, []int64(nil)
		for range draw.IntN(6) {
			f := drawnField(draw, l)
			b = append(b, f.bytes...)
			ends = append(ends, len(b))
			if f.algorithm >= 0 {
				same = f.algorithm == int64(l.Algorithm)
			}
			if f.millis >= 0 {
				millis = f.millis > 0
			}
			if f.words != nil {
				words = f.words
			}
		}
		got := make([]int64, l.words())
		for n := range len(b) {
			_, err := l.readState(got, b[:n], now)
			if whole := n == 0 || slices.Contains(ends, n); (err == nil) != whole {
				t.Fatalf("seed %d: %d bytes of %v: %v", seed, n, b, err)
			}
			cut++
		}
		for _, kind := range []byte{3, 4, 6, 7} {
			unknown := append(slices.Clone(b), 9<<3|kind, 1, 1)
			if _, err := l.readState(got, unknown, now); err == nil {
				t.Fatalf("seed %d: a field of kind %d is read", seed, kind)
			}
		}
		for _, words := range [][]byte{{2, 2, 0x80}, {1, 0x80}, {2, 0xff, 0xff}} {
			cutOff := append(append(slices.Clone(b), 2<<3|2), words...)
			if _, err := l.readState(got, cutOff, now); err == nil {
				t.Fatalf("seed %d: words that are cut off are read: %v", seed, cutOff)
			}
		}
		isSame, err := l.readState(got, b, now)
		want := make([]int64, l.words())
		if same && len(words) > 0 {
			words = slices.Clone(words)
			for i := range words {
				switch { // times of clients were in ns once
				case l.ClientTime && !millis && (i == 1 || i == 3 && l.Sessions):
					up := words[i] / 1e6
					if words[i] > up*1e6 {
						up++
					}
					words[i] = up
				case l.ClientTime && i == 2 || !l.ClientTime && i > 0:
					words[i] = int64(Instant(words[i]).Add(time.Duration(now)))
				}
			}
			copy(want, words)
			want = merged(l, now, want)
		}
		if err != nil || isSame != same || !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v of %+v is read as %v, %t, %v; want %v, %t", seed, b, s, got,
				isSame, err, want, same)
		}
		if !zero(got) {
			read++
		}
	}
	if read < 1000 || cut < 10000 {
		t.Errorf("%d are read, %d cut; that proves little", read, cut)
	}
}
