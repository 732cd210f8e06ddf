// Package servers puts servers that limit rates under the same load: penstock, Gubernator,
// redis-server with a script, envoyproxy/ratelimit, and a gRPC service that does nothing. Follow
// one row: its contestants are started, each with processes of its own on loopback; round by round
// each is measured once at every point, by a client in this process; then they are stopped.
//
// Rivals are asked by the same client with the same messages as penstock is: askAsGubernator,
// askAsEnvoy and askAsRedis each serve both.
package servers

import (
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"penstock/bench/contest"
)

// Base is the contestant that the others are compared with.
const Base = "penstock"

// contestant is something that can be started.
type contestant struct {
	name      string
	start     func(*Programs) (*running, error)
	builds    source   // beside penstock; none if empty
	installed []string // programs that must be there
	// points are those at which it is measured; nil: all of the row.
	points []Point
	// fresh has it started for each measurement and stopped after it, instead of once for all.
	fresh bool
}

// begin starts c, and returns when it answers.
func (c *contestant) begin(p *Programs) (r *running, err error) {
	if r, err = c.start(p); err != nil || r.caller == nil {
		return r, err
	}
	ask := r.caller(0, Point{Callers: 1, Items: 1})
	for range 100 { // a node that listens may not have limits, or others, yet
		if err = ask(); err == nil {
			return r, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return r, fmt.Errorf("%s does not answer: %w", c.name, err)
}

// running are the servers of a contestant, and how to ask them.
type running struct {
	servers []*process
	stops   []func() error
	// caller is how one caller asks, again and again, each time for as many decisions as the point
	// says. An answer that says no, or that is no decision, is an error: errDenied, or another.
	caller  func(id int, p Point) func() error
	rates   map[string]float64 // calls a second, of points with a measured rate
	program []string           // of a contestant that measures itself
	tool    *tool              // how redis-benchmark asks them; nil: it cannot
	readyIn time.Duration      // from the start of the last node until it was ready
	// beside is what goes on while it is measured, until the function that it returns is called;
	// nil: nothing.
	beside func() (stop func() error)
	// of a cluster that another node joins: how that is started, the pages of all nodes' metrics,
	// and since when each node holds its part of the partitions
	join   func() error
	pages  []string
	heldAt time.Time
	look   func() error // reads a page of it, as a monitor does; nil: there is none
}

func (r *running) stop() {
	for _, stop := range r.stops {
		_ = stop()
	}
	for _, s := range r.servers {
		s.stop()
	}
}

func (r *running) cpu() (sum time.Duration) {
	for _, s := range r.servers {
		used, _ := s.cpu()
		sum += used
	}
	return sum
}

func (r *running) resident() (sum float64) {
	for _, s := range r.servers {
		bytes, _ := s.resident()
		sum += float64(bytes)
	}
	return sum
}

// dial connects to addr as a client does that sets nothing: over one connection.
func (r *running) dial(addr string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		r.stops = append(r.stops, conn.Close)
	}
	return conn, err
}

// Row is contestants under the same load.
type Row struct {
	Name, Title string
	Axis        string          // what the points count, if they are numbers
	Tables      []contest.Table // what a report shows
	Aims        []contest.Aim
	contestants []contestant
	points      []Point
	times       int     // each measurement takes so many times as long as others; 0 is 1
	measure     measure // default: ask
	// together measures all contestants at once, instead of measure one after the other, where
	// what they differ by is less than what the machine does from one second to the next. nil: no.
	together func(all map[string]*running, p Point, each time.Duration,
		progress io.Writer) (map[string]map[string]float64, error)
	// prepare finds out what the points need to know, before the first round; nil: nothing.
	prepare func(all map[string]*running, points []Point, each time.Duration,
		progress io.Writer) error
}

// measure notes what a contestant at a point takes, in about d.
type measure func(r *running, p Point, d time.Duration, progress io.Writer) (map[string]float64,
	error)

// Measure measures a row.
func Measure(
	p *Programs, row Row, rounds int, each time.Duration, progress io.Writer,
) ([]contest.Sample, error) {
	type pair struct {
		contestant contestant
		point      Point
		started    *running // nil: it is started afresh
	}
	pairs := map[contest.Job]pair{}
	all := map[string]*running{}
	started := make([]*running, len(row.contestants))
	var jobs []contest.Job
	for i, c := range row.contestants {
		if !c.fresh {
			r, err := c.begin(p)
			if r != nil {
				defer r.stop()
			}
			if err != nil {
				return nil, err
			}
			started[i], all[c.name] = r, r
		}
	}
	time.Sleep(2 * each) // what they do because they have been started is over then
	each *= time.Duration(max(1, row.times))
	if row.prepare != nil {
		if err := row.prepare(all, row.points, each, progress); err != nil {
			return nil, err
		}
	}
	for _, point := range row.points {
		for i, c := range row.contestants {
			if c.points == nil {
				c.points = row.points
			}
			for _, own := range c.points {
				if own.String() == point.String() {
					job := contest.Job{Contestant: c.name, Point: point.String()}
					pairs[job] = pair{c, point, started[i]}
					jobs = append(jobs, job)
				}
			}
		}
	}
	if row.measure == nil {
		row.measure = ask
	}
	if row.together != nil {
		return measureTogether(row, all, rounds, each, progress)
	}
	return contest.Run(rounds, jobs, func(j contest.Job) (map[string]float64, error) {
		c, r := pairs[j].contestant, pairs[j].started
		if c.fresh {
			var err error
			r, err = c.begin(p)
			if r != nil {
				defer r.stop()
			}
			if err != nil {
				return nil, err
			}
		}
		return row.measure(r, pairs[j].point, each, progress)
	}, progress)
}

// measureTogether is Measure for a row of which all contestants are measured at once.
func measureTogether(
	row Row, all map[string]*running, rounds int, each time.Duration, progress io.Writer,
) (samples []contest.Sample, err error) {
	for round := range rounds {
		for _, p := range row.points {
			fmt.Fprintf(progress, "round %d of %d: all, %s\n", round+1, rounds, p)
			yardstick := contest.MeasureYardstick()
			figures, err := row.together(all, p, each, progress)
			if err != nil {
				return nil, err
			}
			for _, c := range row.contestants {
				figures[c.name][contest.Yardstick] = yardstick
				samples = append(samples, contest.Sample{
					Job:   contest.Job{Contestant: c.name, Point: p.String()},
					Round: round, Figures: figures[c.name],
				})
			}
		}
	}
	return samples, nil
}

var errDenied = errors.New("a request is refused that is within its limit")
