package sim

import (
	"bufio"
	"embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Summary is what became of many seeds.
type Summary struct {
	SeedCounts
	Failed   []uint64  `json:"failed"`
	Failures []*Report `json:"failures"` // of the first few that failed
	Smallest *Smallest `json:"smallest"` // the first that failed, made smaller; null if none did

	Skies map[string]int `json:"skies"`
	AnswerCounts
	seldom

	Messages  MessageReport     `json:"messages"`
	Faults    FaultReport       `json:"faults"`
	Holds     HoldReport        `json:"holds"`
	Loss      LossReport        `json:"loss"`
	Available AvailableReport   `json:"available"`
	Checks    map[string]uint64 `json:"checks"`  // by promise
	Allowed   []AllowanceReport `json:"allowed"` // what judges let pass
	allowed   allowed
	VirtualMS float64 `json:"virtual_ms"`
	// allowances that were used too often, if there were seeds enough
	Beyond   []string    `json:"beyond"`
	Injected []Injection `json:"injected"` // what went otherwise than smoothly, by kind
	Missing  []string    `json:"missing"`  // kinds that never did, though there were seeds enough
}

// SeedCounts are the seeds that were run, by the kinds of their worlds.
type SeedCounts struct {
	Seeds   int    `json:"seeds"`   // run, the kept ones included
	Kept    int    `json:"kept"`    // of them, run first because they failed once
	From    uint64 `json:"from"`    // the first of the others
	Holding int    `json:"holding"` // of all, with worlds of holds, from HoldSeeds on
	OnDisk  int    `json:"on_disk"` // of all, with worlds of disks, from DiskSeeds on
	Dated   int    `json:"dated"`   // of all, with worlds of calendars, from CalendarSeeds on
	// of all, with other copies than one, or zones, from CopySeeds on
	Copied int `json:"copied"`
	Treed  int `json:"treed"` // of all, with limits in trees, from TreeSeeds on
	Late   int `json:"late"`  // of all, with messages that come late, from LateSeeds on
	Total  int `json:"-"`     // that are to be run
	Held   int `json:"held"`
}

// AnswerCounts are items that clients heard about.
type AnswerCounts struct {
	Decisions int `json:"decisions"` // items that clients heard about
	Admitted  int `json:"admitted"`
	Denied    int `json:"denied"`
	Degraded  int `json:"degraded"`
	// denied by nodes that remember what the owner has said
	Remembered int `json:"remembered"`
}

// seldom counts what only some worlds have.
type seldom struct {
	agents, distances int
	cutOff, calendars int
}

// Injection is how often something happened to the worlds of a Summary.
type Injection struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

// certainly is a number of seeds among which each kind is drawn: the rarest is part of one world in
// eight or so.
const certainly = 100

// steadily is a number of seeds of which allowances have about the same shares as of many. In
// fewer, a few worlds with many changes of hands decide: nobody counts 3.8 to 6.2 % of the changes
// in ranges of 1000 seeds, and 8.8 % in one of 100.
const steadily = 300

// reportedFailures is how many failing seeds a Summary has the whole Report of.
const reportedFailures = 5

//go:embed testdata/seeds
var seedFiles embed.FS

// KeptSeeds are the seeds that failed once, oldest first, to be run before all others.
func KeptSeeds() []uint64 {
	text, err := seedFiles.ReadFile("testdata/seeds/failed.txt")
	if err != nil {
		panic(err) // embedded when this was compiled
	}
	var seeds []uint64
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for n := 1; lines.Scan(); n++ {
		word, _, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if word == "" || word[0] == '#' {
			continue
		}
		seed, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("sim: testdata/seeds/failed.txt, line %d: %q is not a seed", n, word))
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

// Check runs the kept seeds, KeptSeeds or none, then the n seeds from from on, a fourth as many
// worlds of holds, and an eighth as many of disks, of calendars, of copies, of trees and of late
// messages each, in several worlds at a time, one per worker. progress is called after each with
// what is known so far; it may be nil, and the calls do not overlap. The sums do not depend on the
// number of workers.
func Check(
	keptSeeds []uint64, from uint64, n, workers int, progress func(*Summary),
) *Summary {
	s := &Summary{
		SeedCounts: SeedCounts{Kept: len(keptSeeds), From: from},
		Failed:     []uint64{}, Failures: []*Report{},
		Skies: make(map[string]int), Checks: make(map[string]uint64),
	}
	if from < HoldSeeds {
		s.Holding, s.OnDisk, s.Dated, s.Copied, s.Treed, s.Late = n/4, n/8, n/8, n/8, n/8, n/8
	}
	s.Total = len(keptSeeds) + n + s.others()
	seed := func(i int) uint64 {
		if i < len(keptSeeds) {
			return keptSeeds[i]
		}
		return s.seed(i-len(keptSeeds), n)
	}
	// Worker k runs every so many-th seed from the k-th on, so reports are collected in the order
	// of the seeds by asking one worker after the other.
	workers = max(1, workers)
	reports := make([]chan *Report, workers)
	for k := range reports {
		reports[k] = make(chan *Report, 64)
		go func() {
			for i := k; i < s.Total; i += workers {
				reports[k] <- Run(seed(i))
			}
		}()
	}
	for i := range s.Total {
		s.add(<-reports[i%workers])
		if i == s.Total-1 {
			s.sumUp(n)
		}
		if progress != nil {
			progress(s)
		}
	}
	return s
}

// others are the seeds of worlds of some kind.
func (s *SeedCounts) others() int {
	return s.Holding + s.OnDisk + s.Dated + s.Copied + s.Treed + s.Late
}

// seed is the k-th of the seeds that are not kept, of which n mean worlds of no kind.
func (s *SeedCounts) seed(k, n int) uint64 {
	for _, of := range []struct {
		first uint64
		count int
	}{
		{0, n},
		{HoldSeeds, s.Holding},
		{DiskSeeds, s.OnDisk},
		{CalendarSeeds, s.Dated},
		{CopySeeds, s.Copied},
		{TreeSeeds, s.Treed},
		{LateSeeds, s.Late},
	} {
		if k < of.count {
			return of.first + s.From + uint64(k)
		}
		k -= of.count
	}
	panic("sim: more seeds than there are")
}

func (s *Summary) add(r *Report) {
	s.Seeds++
	if r.OK() {
		s.Held++
	} else {
		s.Failed = append(s.Failed, r.Seed)
		if len(s.Failures) < reportedFailures {
			s.Failures = append(s.Failures, r)
		}
	}
	s.Skies[r.World.Sky]++
	for _, l := range r.Limits {
		s.Decisions += l.Asked
		s.Admitted += l.Admitted
		s.Denied += l.Denied
		s.Degraded += l.Degraded
	}
	for _, p := range r.Promises {
		s.Checks[p.Name] += p.Checked
	}
	s.Messages.add(&r.Messages)
	s.Faults.Crashes += r.Faults.Crashes
	s.Faults.Freezes += r.Faults.Freezes
	s.Faults.Cuts += r.Faults.Cuts
	s.Faults.Joins += r.Faults.Joins
	s.Faults.Leaves += r.Faults.Leaves
	s.Faults.Restarts += r.Faults.Restarts
	s.Faults.Rolls += r.Faults.Rolls
	s.Faults.Steps += r.Faults.Steps
	s.Faults.Saves += r.Faults.Saves
	s.Faults.Restored += r.Faults.Restored
	s.Faults.Deaths += r.Faults.Deaths
	s.Faults.Views += r.Faults.Views
	s.Holds.add(&r.Holds)
	s.Loss.add(&r.Loss)
	if s.Seeds > s.Kept { // kept worlds are no sample: each was chosen for its trouble
		s.allowed.add(&r.allowed)
	}
	s.Available.add(&r.Available)
	s.Remembered += r.Requests.Remembered
	s.agents += r.World.Agents
	s.distances += r.World.Distances
	s.cutOff += r.Requests.CutOff
	s.calendars += r.World.Calendars
	s.VirtualMS += r.VirtualMS
}

func (m *MessageReport) add(o *MessageReport) {
	m.Sent += o.Sent
	m.Lost += o.Lost
	m.Doubled += o.Doubled
	m.Overtaken += o.Overtaken
	m.Refused += o.Refused
	m.TimedOut += o.TimedOut
}

// sumUp counts what was injected. What never happened was not tested, so among many seeds it must
// not be missing.
func (s *Summary) sumUp(seeds int) {
	s.Allowed = s.allowed.reports()
	f, m := &s.Faults, &s.Messages
	s.Injected = []Injection{
		{"crashes", f.Crashes},
		{"freezes", f.Freezes},
		{"cuts", f.Cuts},
		{"clocks set", f.Steps},
		{"declared dead", f.Deaths},
		{"joins", f.Joins},
		{"leaves", f.Leaves},
		{"restarts", f.Restarts},
		{"rolling restarts", f.Rolls},
		{"restarts with a file", f.Restored},
		{"views", f.Views},
		{"agents", s.agents},
		{"longer links", s.distances},
		{"lost", m.Lost},
		{"doubled", m.Doubled},
		{"overtaken", m.Overtaken},
		{"turned away", m.Refused},
		{"timed out", m.TimedOut},
		{"degraded", s.Degraded},
		{"cut off", s.cutOff},
		{"calendars", s.calendars},
		{"denied", s.Denied},
		{"denied from memory", s.Remembered},
		{"holds", s.Holds.Opened},
		{"settlements", s.Holds.Settled},
		{"holds that run out", s.Holds.RanOut},
		{"holds put off", s.Holds.Extended},
		{"leases", s.Holds.Leases},
		{"decisions from leases", s.Holds.Spent},
	}
	s.Missing, s.Beyond = []string{}, []string{}
	if seeds >= steadily && s.From < HoldSeeds {
		s.Beyond = append(s.Beyond, s.allowed.beyond()...)
	}
	for _, x := range s.Injected {
		if x.Count == 0 && seeds >= certainly && s.From < HoldSeeds {
			s.Missing = append(s.Missing, x.Kind)
		}
	}
}

// OK reports whether every promise held in every world, nothing is missing that there should
// have been, and no allowance was used too often.
func (s *Summary) OK() bool { return len(s.Failed)+len(s.Missing)+len(s.Beyond) == 0 }

// WriteText writes s for people, 80 columns wide, failures first. The last line says it all.
func (s *Summary) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, r := range s.Failures {
		fmt.Fprintf(&b, "seed %d", r.Seed)
		r.Failure.write(&b)
		b.WriteString("\n")
	}
	if s.Smallest != nil {
		s.Smallest.write(&b)
	}
	fmt.Fprintf(&b, "worlds     %d calm, %d lossy, %d with outages; %v of virtual time\n",
		s.Skies[string(calm)], s.Skies[string(lossy)], s.Skies[string(outage)],
		(time.Duration(s.VirtualMS) * time.Millisecond).Round(time.Second))
	fmt.Fprintf(&b, "decisions  %d: %d admitted, %d denied (%d from memory), %d degraded\n",
		s.Decisions, s.Admitted, s.Denied, s.Remembered, s.Degraded)
	m := &s.Messages
	fmt.Fprintf(&b, "messages   %d: %d lost, %d doubled, %d overtaken, %d turned away\n", m.Sent,
		m.Lost, m.Doubled, m.Overtaken, m.Refused)
	f := &s.Faults
	fmt.Fprintf(&b, "faults     %d crashes, %d freezes, %d cuts, %d clocks set, %d declared dead\n",
		f.Crashes, f.Freezes, f.Cuts, f.Steps, f.Deaths)
	fmt.Fprintf(&b, "members    %d joins, %d leaves, %d restarts, %d rolling, %d views\n", f.Joins,
		f.Leaves, f.Restarts, f.Rolls, f.Views)
	fmt.Fprintf(&b, "places     %d agents, %d longer links; %d calls timed out\n", s.agents,
		s.distances, m.TimedOut)
	fmt.Fprintf(&b,
		"calendars  %d windows that have ended; %d visits to who was cut off from most\n",
		s.calendars, s.cutOff)
	fmt.Fprintf(&b, "disks      %d files written, %d starts with what a file says\n", f.Saves,
		f.Restored)
	h := &s.Holds
	fmt.Fprintf(&b,
		"holds      %d opened, %d settled, %d ran out, %d put off; %d leases, %d spent\n", h.Opened,
		h.Settled, h.RanOut, h.Extended, h.Leases, h.Spent)
	s.Loss.write(&b)
	s.Available.write(&b)
	writeAllowances(&b, s.Allowed)
	for _, p := range promiseWords {
		fmt.Fprintf(&b, "checked    %10d × %s\n", s.Checks[p[0]], p[1])
	}
	if s.OK() {
		fmt.Fprintf(&b,
			"ok: %d of %d seeds held every promise (%d kept, %d from %d, %d of holds, %d of "+
				"disks, %d of calendars, %d of copies, %d of trees, %d late)\n",
			s.Held, s.Seeds, s.Kept,
			s.Seeds-s.Kept-s.others(), s.From,
			s.Holding, s.OnDisk, s.Dated, s.Copied, s.Treed, s.Late)
	} else if len(s.Failed) > 0 {
		fmt.Fprintf(&b, "FAILED: %d of %d seeds broke a promise: %s\n", len(s.Failed), s.Seeds,
			someOf(s.Failed))
	} else if len(s.Beyond) > 0 {
		fmt.Fprintf(&b, "FAILED: 0 of %d seeds broke a promise, but judges let pass too much: %s\n",
			s.Seeds, strings.Join(s.Beyond, ", "))
	} else {
		fmt.Fprintf(&b, "FAILED: 0 of %d seeds broke a promise, but they had none of these: %s\n",
			s.Seeds, strings.Join(s.Missing, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func someOf(seeds []uint64) string {
	const shown = 6
	text := strings.Trim(fmt.Sprint(seeds[:min(shown, len(seeds))]), "[]")
	if len(seeds) > shown {
		text += " …"
	}
	return text
}
