package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"penstock/bench/history/judge"
)

// measure notes what each process takes at the beginning.
func (r *run) measure() {
	for _, n := range r.cluster.asked(up) {
		n.began, _ = n.vitals(context.Background())
	}
}

// compare notes which of those that are still there take much more at the end.
func (r *run) compare() {
	for _, n := range r.cluster.asked(up) {
		v, err := n.vitals(context.Background())
		if err != nil || n.began == nil {
			continue
		}
		text := fmt.Sprintf(
			"%s: goroutines %d → %d, descriptors %d → %d, resident %d → %d MB",
			n.name,
			n.began.goroutines,
			v.goroutines,
			n.began.descriptors,
			v.descriptors,
			n.began.kilobytes>>10,
			v.kilobytes>>10,
		)
		fmt.Fprintln(r.out, text)
		if v.goroutines > 2*n.began.goroutines+50 || v.descriptors > 2*n.began.descriptors+50 ||
			v.kilobytes > n.began.kilobytes+(256+96)<<10 {
			r.leaks = append(r.leaks, text)
		}
	}
}

// report prints what was found, and returns an error if a promise is broken.
func report(out io.Writer, o *options, h *judge.History, v *judge.Verdict, leaks []string) error {
	fmt.Fprintf(
		out,
		"\n%d requests to %d keys in %v",
		len(h.Ops),
		v.Keys,
		span(h).Round(time.Second),
	)
	if v.Undecided > 0 {
		fmt.Fprintf(out, "; %d keys took too long to judge", v.Undecided)
	}
	if len(h.Stalls) > 0 {
		fmt.Fprintf(out, "; the machine stalled %d times", len(h.Stalls))
	}
	fmt.Fprint(out, "\n\n")
	table(out, v)
	counted := map[string]int{}
	for _, c := range v.Contradictions {
		name := c.Rule + ", " + c.Fault
		if counted[name]++; counted[name] <= 3 {
			fmt.Fprintf(out, "\nCONTRADICTION: %s", c)
		}
	}
	fmt.Fprintln(out)
	cases(out, v)
	for _, text := range leaks {
		fmt.Fprintf(out, "not ok - leaks: %s\n", text)
	}
	if len(v.Contradictions) > 0 && o.judge == "" {
		name := fmt.Sprintf("history-%d.txt", o.seed)
		if err := shortened(name, o, v); err != nil {
			return err
		}
		fmt.Fprintf(out, "the contradictions are in %s; again: %s\n", name, o.again())
	}
	if bad := len(v.Contradictions); bad+len(leaks) > 0 {
		return fmt.Errorf("%w: %d contradictions, %d leaks", errContradicted, bad, len(leaks))
	}
	return nil
}

func span(h *judge.History) time.Duration {
	var last time.Duration
	for _, o := range h.Ops {
		last = max(last, o.End)
	}
	return last
}

func table(out io.Writer, v *judge.Verdict) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(
		w,
		"fault\ttimes\trequests\textra\tof one key\tlost\tmay be "+
			"lost\tmarked\tanew\tfailed\texcused\tlongest\tp99",
	)
	for _, f := range v.Figures {
		fmt.Fprintf(
			w,
			"%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t%v\n",
			f.Kind,
			f.Times,
			f.Requests,
			f.Extra,
			f.Worst,
			f.Lost,
			f.Forgiven,
			f.Marked,
			f.Anew,
			f.Failed,
			f.Excused,
			f.Longest.Round(time.Millisecond),
			f.P99.Round(100*time.Microsecond),
		)
	}
	_ = w.Flush()
}

// cases says of each kind of fault whether each promise held, for CI to count.
func cases(out io.Writer, v *judge.Verdict) {
	type broken struct{ fault, rule string }
	times, bad := map[broken]int{}, map[string]bool{}
	for _, c := range v.Contradictions {
		times[broken{c.Fault, c.Rule}]++
		bad[c.Fault] = true
	}
	for b, n := range times {
		fmt.Fprintf(out, "not ok - %s: %s, %d times\n", b.fault, b.rule, n)
	}
	for _, f := range v.Figures {
		if !bad[f.Kind] {
			fmt.Fprintf(out, "ok - %s: %d times, %d requests\n", f.Kind, f.Times, f.Requests)
		}
	}
}

// shortened writes the contradictions to a file.
func shortened(name string, o *options, v *judge.Verdict) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(f, "seed %d\n%s\n", o.seed, o.again())
	for _, c := range v.Contradictions {
		fmt.Fprintf(f, "\n%s", c)
	}
	return f.Close()
}
