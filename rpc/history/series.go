package history

// The counts of a Sample, in the order of its fields.
const (
	Allowed   = iota // items that were admitted, those beyond their limit among them
	Denied           // items that were refused
	Beyond           // of Allowed: the limit refuses (dry_run, on_deny)
	Degraded         // answered under less than the full promise
	Candidate        // a candidate would have refused, and the limit has admitted
	ofCounts
)

// Counts are what a node has counted at its doors since its start.
type Counts [ofCounts]uint64

// Sample is what was counted within one step of time.
type Sample [ofCounts]uint32

// Add adds up samples of several nodes.
func (s *Sample) Add(o *Sample) {
	for i := range s {
		s[i] += o[i]
	}
}

// The two resolutions of a Series.
const (
	FineStep   = 1   // seconds
	FineSlots  = 300 // five minutes
	roughStep  = 10  // seconds
	roughSlots = 360 // an hour
)

// Series is an hour of counts: the last five minutes by the second, and the hour by ten seconds.
// Its size is fixed: 660 samples of 20 bytes, and a bit each. Time is that of a wall clock, in
// seconds since 1970; a clock that goes back overwrites what is there.
type Series struct {
	before Counts
	fine   track
	rough  track
}

// track is a ring of samples of one step.
type track struct {
	step    int64
	newest  int64 // time divided by step, of the latest sample; 0: there is none
	samples []Sample
	there   []bool // the node was there to count
}

// NewSeries is empty, and counts from 0.
func NewSeries() *Series {
	return &Series{fine: newTrack(FineStep, FineSlots), rough: newTrack(roughStep, roughSlots)}
}

func newTrack(step int64, slots int) track {
	return track{step: step, samples: make([]Sample, slots), there: make([]bool, slots)}
}

// Record adds what was counted since the last Record to the second at.
func (s *Series) Record(at int64, now Counts) {
	var fresh Sample
	for i := range now {
		if now[i] > s.before[i] {
			fresh[i] = uint32(min(now[i]-s.before[i], 1<<32-1))
		}
	}
	s.before = now
	s.fine.add(at, &fresh)
	s.rough.add(at, &fresh)
}

// slot is where the samples of a time lie; it empties those that have become too old.
func (t *track) slot(at int64) int {
	n, size := at/t.step, int64(len(t.samples))
	for k := max(t.newest+1, n-size+1); t.newest > 0 && k <= n; k++ {
		t.samples[k%size], t.there[k%size] = Sample{}, false
	}
	t.newest = max(t.newest, n)
	return int(n % size)
}

func (t *track) add(at int64, fresh *Sample) {
	i := t.slot(at)
	t.samples[i].Add(fresh)
	t.there[i] = true
}

// Rows are samples of one step, without gaps. A row is nil where the node was not there to count.
type Rows struct {
	Step int64     `json:"step"` // seconds: 1 or 10
	From int64     `json:"from"` // seconds since 1970, of the first row
	Rows []*Sample `json:"rows"`
}

// Read returns the samples from a time on, as far as they are kept. rough asks for steps of ten
// seconds.
func (s *Series) Read(from int64, rough bool) Rows {
	t := &s.fine
	if rough {
		t = &s.rough
	}
	out := Rows{Step: t.step, Rows: []*Sample{}}
	if t.newest == 0 {
		return out
	}
	size := int64(len(t.samples))
	first := max(from/t.step, t.newest-size+1, 1)
	out.From = first * t.step
	for n := first; n <= t.newest; n++ {
		var row *Sample
		if i := n % size; t.there[i] {
			copied := t.samples[i]
			row = &copied
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// Take writes rows of another node's series over those that are here. shift is added to their
// times, in seconds.
func (s *Series) Take(r Rows, shift int64) {
	t := &s.fine
	if r.Step == s.rough.step {
		t = &s.rough
	}
	for i, row := range r.Rows {
		at := r.From + int64(i)*r.Step + shift
		if row == nil || at <= 0 || at/t.step <= t.newest-int64(len(t.samples)) {
			continue
		}
		k := t.slot(at)
		t.samples[k], t.there[k] = *row, true
	}
}
