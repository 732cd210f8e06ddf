package servers

import (
	"io"
	"math"
	"net"
	"slices"
	"testing"
	"time"
)

// TestRows: of each row's contestants, but for Gubernator, which takes minutes to build from nothing, there is every figure
// at every point, and no call failed.
func TestRows(t *testing.T) {
	p, err := build("..", t.TempDir(), ours)
	if err != nil {
		t.Fatal(err)
	}
	p.Self = "" // the program of this test is no empty service
	for _, row := range Rows {
		row.contestants = slices.DeleteFunc(slices.Clone(row.contestants), func(c contestant) bool { return c.name != Base })
		t.Run(row.Name, func(t *testing.T) {
			samples, err := Measure(p, row, 1, 20*time.Millisecond, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if len(samples) != len(row.points) {
				t.Fatalf("%d samples of %d points", len(samples), len(row.points))
			}
			for _, s := range samples {
				for _, table := range Tables {
					x, measured := s.Figures[table.Figure]
					// The servers' processor time is counted in hundredths of a second: in so short a time it may be none.
					if !measured || math.IsNaN(x) || math.IsInf(x, 0) || x <= 0 && table.Figure != serverCPU && table.Figure != failures || x > 0 && table.Figure == failures {
						t.Errorf("%s: %s is %v", s.Point, table.Figure, x)
					}
				}
			}
		})
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
	figures, err := measure(r, Point{Callers: 2, Items: 1, Rate: 1000}, 20*time.Millisecond, io.Discard)
	if err != nil || figures[speed] <= 0 || figures[speed] > 1500 {
		t.Errorf("%v, %v a second of 1000", err, figures[speed])
	}
}

// TestRefusalsDoNotCount: what is measured are decisions that say yes, so who refuses is not fast but failing.
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
	figures, err := measure(r, Point{Callers: 1, Items: 1}, 5*time.Millisecond, io.Discard)
	if x := figures[failures]; err != nil || x < 40 || x > 60 {
		t.Errorf("%v; %v %% failed of which every second did", err, x)
	}
	r.caller = func(int, Point) func() error { return func() error { return errDenied } }
	figures, err = measure(r, Point{Callers: 2, Items: 1}, time.Millisecond, io.Discard)
	if err != nil || figures[speed] != 0 || figures[failures] != 100 {
		t.Errorf("%v, %v", err, figures)
	}
}
