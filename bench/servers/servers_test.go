package servers

import (
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"penstock/bench/contest"
	"penstock/bench/inprocess"
	"penstock/ring"
)

// TestMain lets the test's program be what the real one is too: the empty service, and a limiter
// that measures itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == inprocess.Verb {
		if err := InProcess(os.Args[2:], os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	if len(os.Args) > 2 && os.Args[1] == MemberVerb {
		log.Fatal(Member(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == AloneVerb {
		log.Fatal(Alone(os.Args[2:]))
	}
	if len(os.Args) == 3 && os.Args[1] == EmptyVerb {
		l, err := net.Listen("tcp", os.Args[2])
		if err == nil {
			err = ServeEmpty(l)
		}
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// TestRows: of each row's contestants there is every figure at every point, and no call failed.
// Those that are built from other projects' sources, which takes minutes from nothing, are measured
// too if BENCH_RIVALS is set. Of what grows, the first two points.
func TestRows(t *testing.T) {
	rows := slices.Clone(Rows)
	for i := range rows {
		if rows[i].Name == "join" {
			rows[i] = Join(1000)
		}
		rows[i].contestants = slices.DeleteFunc(slices.Clone(rows[i].contestants),
			func(c contestant) bool {
				return c.builds != (source{}) && os.Getenv("BENCH_RIVALS") == ""
			})
		if rows[i].Axis != "" {
			rows[i].points = rows[i].points[:2]
			rows[i].contestants = slices.DeleteFunc(rows[i].contestants, func(c contestant) bool {
				return c.points != nil && !slices.ContainsFunc(rows[i].points, func(p Point) bool {
					return p.String() == c.points[0].String()
				})
			})
		}
	}
	p, err := Build("..", t.TempDir(), installed(rows), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			for _, c := range row.contestants {
				if program := c.missing(); program != "" {
					t.Skipf("%s is not installed: apt-get install redis-server redis-tools",
						program)
				}
			}
			t.Parallel() // mostly they wait
			samples, err := Measure(p, row, 1, 10*time.Millisecond, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			check(t, row, samples)
		})
	}
}

// installed are the rows of which nothing is missing on this machine.
func installed(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(row Row) bool {
		return slices.ContainsFunc(row.contestants, func(c contestant) bool {
			return c.missing() != ""
		})
	})
}

// check: there is a sample for each contestant at each of its points, with all figures, and each
// aim has what it needs.
func check(t *testing.T, row Row, samples contest.Results) {
	t.Helper()
	tables := row.Tables
	if tables == nil {
		tables = Tables
	}
	want := 0
	for _, c := range row.contestants {
		if c.points == nil {
			c.points = row.points
		}
		want += len(c.points)
	}
	if len(samples) != want {
		t.Errorf("%d samples, want %d", len(samples), want)
	}
	for _, s := range samples {
		_, measured := s.Figures[tables[0].Figure]
		for figure, x := range s.Figures {
			if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 || figure == failures && x > 0 {
				t.Errorf("%s, %s: %s is %v", s.Contestant, s.Point, figure, x)
			}
		}
		if x := s.Figures[tables[0].Figure]; measured && x <= 0 {
			t.Errorf("%s, %s: %s is %v", s.Contestant, s.Point, tables[0].Figure, x)
		}
	}
	for _, table := range tables {
		if !slices.ContainsFunc(samples, func(s contest.Sample) bool {
			_, measured := s.Figures[table.Figure]
			return measured
		}) && table.Figure != unsent {
			t.Errorf("nobody has %s", table.Figure)
		}
	}
	for _, aim := range row.Aims {
		for _, job := range append(slices.Clone(aim.Against), aim.Job) {
			figure := slices.ContainsFunc(samples, func(s contest.Sample) bool {
				_, measured := s.Figures[aim.Figure]
				return s.Job == job && measured
			})
			built := slices.ContainsFunc(row.contestants, func(c contestant) bool {
				return c.name == job.Contestant
			})
			if built && !figure {
				t.Errorf("%s: nobody measures %s of %v", aim.Work, aim.Figure, job)
			}
		}
	}
}

// TestEmpty: the service that does nothing answers.
func TestEmpty(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = ServeEmpty(l) }() // as long as this process lives
	r := &running{}
	if err := r.askEmpty(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer r.stop()
	figures, err := ask(r, Point{Callers: 2, Items: 1, Rate: 1000}, 20*time.Millisecond, io.Discard)
	if err != nil || figures[speed] <= 0 || figures[speed] > 1500 {
		t.Errorf("%v, %v a second of 1000", err, figures[speed])
	}
}

// TestRefusalsDoNotCount: only admitted decisions are measured, so a server that refuses is not
// fast but failing.
func TestRefusalsDoNotCount(t *testing.T) {
	n := 0
	r := &running{caller: func(int, Point) func() error {
		return func() error {
			if n++; n%2 == 0 {
				return errDenied
			}
			return nil
		}
	}}
	figures, err := ask(r, Point{Callers: 1, Items: 1}, 5*time.Millisecond, io.Discard)
	if x := figures[failures]; err != nil || x < 40 || x > 60 {
		t.Errorf("%v; %v %% failed of which every second did", err, x)
	}
	r.caller = func(int, Point) func() error { return func() error { return errDenied } }
	figures, err = ask(r, Point{Callers: 2, Items: 1}, time.Millisecond, io.Discard)
	if err != nil || figures[speed] != 0 || figures[failures] != 100 {
		t.Errorf("%v, %v", err, figures)
	}
}

// TestWhole: nodes are whole when they know each other, each holds its part, all partitions are
// held, and none lacks a copy or is on its way.
func TestWhole(t *testing.T) {
	text := func(held, active, giving, without, under int) string {
		return fmt.Sprintf("penstock_partitions{state=\"held\"} %d\n"+
			"penstock_partitions{state=\"giving\"} %d\npenstock_members{state=\"active\"} %d\n"+
			"penstock_unreplicated_partitions %d\npenstock_underreplicated_partitions %d\n",
			held, giving, active, without, under)
	}
	const some, few, most = 1600, 800, ring.Partitions - 1600
	for _, c := range []struct {
		first, second string
		whole         bool
	}{
		{text(most, 2, 0, 0, 0), text(some, 2, 0, 0, 0), true},
		{text(most, 1, 0, 0, 0), text(some, 2, 0, 0, 0), false},
		{text(ring.Partitions-few, 2, 0, 0, 0), text(few, 2, 0, 0, 0), false},
		{text(most, 2, 0, 0, 0), text(some-1, 2, 0, 0, 0), false},
		{text(most, 2, 1, 0, 0), text(some, 2, 0, 0, 0), false},
		{text(most, 2, 0, 0, 0), text(some, 2, 0, 1, 0), false},
		{text(most, 2, 0, 0, 0), text(some, 2, 0, 0, 1), false},
		{"", text(ring.Partitions, 2, 0, 0, 0), false},
	} {
		r := &running{}
		for _, text := range []string{c.first, c.second} {
			page := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
			defer page.Close()
			r.pages = append(r.pages, page.URL)
		}
		if err := r.whole(); (err == nil) != c.whole {
			t.Errorf("%v of\n%s%s", err, c.first, c.second)
		}
	}
}
