package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"penstock/cluster"
)

// benchVerb loads a cluster and judges what it admits.
type benchVerb struct {
	Addr    []string      `default:"127.0.0.1:7948" placeholder:"HOST:PORT" help:"gRPC doors to load, with commas; each request goes to one at random, or if that is down to the next."`
	Self    bool          `help:"Start three nodes in this process and load those."`
	Remote  bool          `help:"Allow addresses off loopback: only if those who run that cluster agree."`
	Timeout time.Duration `default:"1s" help:"Deadline of each request."`

	Rate     float64       `default:"2000" help:"Requests per second, sent on time whatever the answers; 0: as fast as the workers get answers."`
	Duration time.Duration `short:"d" default:"10s" help:"How long to send, 1h at most."`
	Workers  int           `short:"w" default:"64" help:"Requests under way at once, at most."`
	Batch    int           `default:"1" help:"Checks per request."`
	Cost     int64         `default:"1" help:"Units per check."`

	Keys   int     `default:"1000" help:"Number of keys."`
	Dist   string  `default:"zipf" enum:"zipf,uniform" help:"How often each key is drawn: zipf or uniform."`
	Zipf   float64 `default:"1.1" help:"Exponent of zipf, above 1: higher means that few keys get more."`
	Prefix string  `help:"Beginning of every key. Default: drawn anew, so that the keys are new, as the count of admissions needs."`
	Seed   uint64  `default:"1" help:"Seed of the random keys."`

	Limit string `placeholder:"NAME" help:"Check this limit of the cluster. Its window is not known here: admissions are then not judged."`
	inline
	credentials
	output
}

// The limit that is checked if the command line has none.
var benchLimit = inline{Algorithm: "gcra", LimitCount: 100, Per: per(time.Second)}

func (v *benchVerb) Run(sh shell) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := v.check(); err != nil {
		return err
	}
	if v.Self {
		nodes, err := startThree(ctx, newLogger(sh.err, logFormat{}.of(sh.err), slog.LevelError),
			selfSettings)
		if err != nil {
			return err
		}
		defer stopAll(nodes)
		v.Addr = nil
		for _, r := range nodes {
			v.Addr = append(v.Addr, r.member.GRPCAddr)
		}
	}
	t, err := v.target()
	if err != nil {
		return err
	}
	defer t.close()
	if err := v.warmUp(ctx, t); err != nil {
		return err
	}

	l := load{
		rate: v.Rate, duration: v.Duration, workers: v.Workers, seed: v.Seed, pause: pause,
		sender: t.sender,
	}
	counts := new(tally)
	done := showProgress(sh.err, v.Duration, counts)
	m := l.run(ctx, counts)
	done()
	report := v.report(t, counts, m)
	if err := v.print(sh.out, report, report.write); err != nil {
		return err
	}
	return report.failure(counts)
}

// checkLoad says what is wrong with how much is asked, and for how long.
func (v *benchVerb) checkLoad() error {
	switch {
	case v.Rate < 0 || v.Rate > 1e7:
		return fmt.Errorf("--rate %v: give 0 to 10000000 requests per second", v.Rate)
	case v.Duration < 10*time.Millisecond || v.Duration > time.Hour:
		return fmt.Errorf("--duration %v: give 10ms to 1h", v.Duration)
	case v.Workers < 1 || v.Workers > 10000:
		return fmt.Errorf("--workers %d: give 1 to 10000", v.Workers)
	}
	return nil
}

// check says what is wrong with the flags.
func (v *benchVerb) check() error {
	if err := v.checkLoad(); err != nil {
		return err
	}
	switch {
	case v.Batch < 1 || v.Batch > cluster.MaxItems:
		return fmt.Errorf("--batch %d: give 1 to %d", v.Batch, cluster.MaxItems)
	case v.Cost < 1 || v.Cost > maxUnits:
		return fmt.Errorf("--cost %d: give 1 to %d", v.Cost, maxUnits)
	case v.Keys < 1 || v.Keys > 10_000_000:
		return fmt.Errorf("--keys %d: give 1 to 10000000", v.Keys)
	case v.Zipf <= 1 || v.Zipf > 10:
		return fmt.Errorf("--zipf %v: give more than 1, at most 10", v.Zipf)
	case v.Timeout < time.Millisecond || v.Timeout > time.Minute:
		return fmt.Errorf("--timeout %v: give 1ms to 1m", v.Timeout)
	case len(v.Prefix) > cluster.MaxKey-16:
		return fmt.Errorf("--prefix: has %d bytes; at most %d leave room for the rest of the key",
			len(v.Prefix), cluster.MaxKey-16)
	case v.Limit != "" && v.given():
		return errors.New("give --limit or an inline limit (--algorithm …), not both")
	}
	return v.checkTargets()
}

// checkTargets refuses other machines, unless they are meant.
func (v *benchVerb) checkTargets() error {
	for _, addr := range v.Addr {
		d, err := parseTarget(addr)
		if err != nil {
			return err
		}
		if !v.Remote && !d.loopback() {
			return fmt.Errorf("--addr %s is another machine: a load generator can take it down; "+
				"say --remote if that is meant", addr)
		}
	}
	return nil
}

// selfSettings are node i of bench --self: on free ports.
func selfSettings(i int, first *running) (settings, error) {
	const free = "127.0.0.1:0"
	s := settings{
		Name:        fmt.Sprintf("node-%d", i+1),
		memberFlags: memberFlags{TrustRefused: true},
		doorFlags:   doorFlags{Gossip: free, Peer: free, GRPC: free, HTTP: "off"},
	}
	if first != nil {
		s.Join = []string{first.gossip.Addr()}
	}
	return s, nil
}

// showProgress writes a line a second to a terminal, or one every ten seconds elsewhere. The caller
// calls done.
func showProgress(w io.Writer, duration time.Duration, c *tally) (done func()) {
	every, terminal := 10*time.Second, isTerminal(w)
	if terminal {
		every = time.Second
	}
	began, stop, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	bottom := &screen{out: w}
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				if terminal {
					bottom.show("")
				}
				return
			}
			line := fmt.Sprintf("%v of %v: %s allowed, %s denied, %s errors\n",
				time.Since(began).Round(time.Second), duration,
				thousands(c.allowed.Load()), thousands(c.denied.Load()), thousands(c.failed.Load()))
			if terminal {
				bottom.show(line)
			} else {
				io.WriteString(w, line)
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
