// Mutants breaks the tree in many small ways, one at a time, and demands that a test notices each:
//
//	go run -C tools ./mutants                     all rooms
//	go run -C tools ./mutants -room limiter -n 40 40 mutants of one
//	go run -C tools ./mutants -sample 3           3 of each room and 3 hand-written ones, for CI
//	go run -C tools ./mutants -sim                the simulator alone, without unit tests
//
// Most mutants are made by operators (operators.go): a condition is negated, < becomes <=, a
// statement is dropped. Those in planted.txt are written by hand; each says which promise it
// breaks. Mutants that do not compile, or compile to the same bytes, are replaced by others. A run
// that does not end is a kill. The program exits 1 if a mutant survives that explained.txt does not
// explain: a survivor is a test that is missing, or an edit that changes nothing that can be seen.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// options are what the command line says.
type options struct {
	root, planted, explained string
	room, only               string
	n, sample, workers       int
	seed                     uint64
	simOnly, noSim           bool
	byHand, own              bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "..", "the tree")
	flag.StringVar(&o.planted, "planted", "mutants/planted.txt", "the file of hand-written mutants")
	flag.StringVar(&o.explained, "explained", "mutants/explained.txt", "the explained survivors")
	flag.StringVar(&o.room, "room", "", "only these rooms, with commas in between")
	flag.StringVar(&o.only, "only", "", "only mutants whose fingerprint matches")
	flag.IntVar(&o.n, "n", 0, "drawn mutants of each room; 0: as many as the room says")
	flag.IntVar(&o.sample, "sample", 0, "only so many mutants of each room, drawn and by hand, "+
		"and no simulator")
	flag.IntVar(&o.workers, "workers", 2, "mutants at a time")
	flag.Uint64Var(&o.seed, "seed", 1, "which mutants are drawn")
	flag.BoolVar(&o.simOnly, "sim", false, "no unit tests, the simulator alone")
	flag.BoolVar(&o.noSim, "no-sim", false, "unit tests alone")
	flag.BoolVar(&o.own, "own", false, "the tests of the room's own package alone")
	flag.BoolVar(&o.byHand, "hand", false, "hand-written mutants alone")
	flag.Parse()
	open, err := o.visit(rooms)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if open > 0 {
		fmt.Printf("FAILED: %d survivors are not explained in %s\n", open, o.explained)
		os.Exit(1)
	}
	fmt.Println("ok: every mutant was killed or is explained")
}

// tally is what became of the mutants of a room.
type tally struct {
	all, killed, explained, open int
}

func (t tally) row(name string) string {
	percent := func(of int) float64 { return 100 * float64(t.killed) / float64(max(of, 1)) }
	const words = "%-10s %4d mutants %4d killed %5.1f %%   " +
		"%d survived, %d of them explained   %5.1f %% of all others"
	return fmt.Sprintf(words, name, t.all, t.killed, percent(t.all),
		t.open+t.explained, t.explained, percent(t.all-t.explained))
}

// visit tries the mutants of all rooms that are asked for. It returns how many survivors are not
// explained.
func (o *options) visit(all []*room) (open int, err error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return 0, err
	}
	reasons, err := readExplained(o.explained)
	if err != nil {
		return 0, err
	}
	byHand, err := readPlanted(o.root, o.planted, all)
	if err != nil {
		return 0, err
	}
	w, err := newWorkshop(o.root)
	if err != nil {
		return 0, err
	}
	defer w.close()
	w.simOnly, w.noSim, w.own = o.simOnly, o.noSim || o.own || o.sample > 0, o.own
	var rows []string
	sum := tally{}
	for _, r := range all {
		wanted := o.room == "" || strings.Contains(","+o.room+",", ","+r.name+",")
		if !wanted || w.simOnly && r.seeds == 0 {
			continue
		}
		queue, n, err := o.queue(w, r, byHand, only)
		if err != nil {
			return 0, err
		}
		t, err := w.tryAll(queue, n, o.workers, reasons)
		if err != nil {
			return 0, err
		}
		rows = append(rows, t.row(r.name))
		sum.all += t.all
		sum.killed += t.killed
		sum.explained += t.explained
		sum.open += t.open
	}
	if len(rows) == 0 {
		return 0, fmt.Errorf("there is no room %q", o.room)
	}
	fmt.Println(strings.Join(append(rows, sum.row("all")), "\n"))
	return sum.open, nil
}

// queue are the mutants of one room in their order, and how many of them are to count.
func (o *options) queue(
	w *workshop, r *room, byHand []*mutant, only *regexp.Regexp,
) (queue []*mutant, n int, err error) {
	drawn, err := r.mutants(o.root, o.seed)
	if err == nil && !o.byHand && !o.simOnly {
		if s, bad := putToSleep(w.root, w.dir, r, drawn); bad == nil {
			w.sleepers[r] = s
		} else {
			fmt.Printf("# each mutant of %s is built alone: %v\n", r.name, bad)
		}
	}
	n = r.n
	if o.n > 0 {
		n = o.n
	}
	for _, m := range byHand {
		if m.room == r && only.MatchString(m.fingerprint()) {
			queue = append(queue, m)
		}
	}
	if o.sample > 0 {
		n = o.sample
		inOrder(queue, o.seed)
		queue = queue[:min(n, len(queue))]
	}
	n += len(queue)
	if o.byHand {
		n, drawn = len(queue), nil
	}
	for _, m := range drawn {
		if only.MatchString(m.fingerprint()) {
			queue = append(queue, m)
		}
	}
	return queue, n, err
}

// tryAll tries mutants in their order until n of them count.
func (w *workshop) tryAll(
	queue []*mutant, n, workers int, reasons map[string]string,
) (t tally, err error) {
	var (
		mu      sync.Mutex // guards all that follows, and t and err
		next    int
		pending int
		group   sync.WaitGroup
	)
	take := func() *mutant {
		for {
			mu.Lock()
			switch {
			case err != nil || next == len(queue) || t.all == n:
				mu.Unlock()
				return nil
			case t.all+pending < n:
				m := queue[next]
				next, pending = next+1, pending+1
				mu.Unlock()
				return m
			}
			mu.Unlock() // what is tried now may not count
			time.Sleep(50 * time.Millisecond)
		}
	}
	for range max(workers, 1) {
		group.Go(func() {
			for m := take(); m != nil; m = take() {
				v, failure := w.try(m)
				mu.Lock()
				pending--
				if failure != nil {
					err = failure
				} else {
					t.count(m, v, reasons)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return t, err
}

// count prints and counts what became of a mutant.
func (t *tally) count(m *mutant, v verdict, reasons map[string]string) {
	word, note := "killed", "by "+v.by
	switch reason, explained := reasons[m.fingerprint()]; {
	case v.kind == invalid && m.breaks == "", v.kind == identical && m.breaks == "":
		return
	case v.kind == invalid:
		word, note = "SURVIVED", "(it does not compile: write it anew for the code of today)"
		t.open++
	case v.kind == identical:
		word, note = "SURVIVED", "(it changes nothing)"
		t.open++
	case v.kind == killed:
		t.killed++
	case explained:
		word, note = "explained", reason
		t.explained++
	default:
		word, note = "SURVIVED", m.breaks
		t.open++
	}
	t.all++
	fmt.Printf("%-9s %-22s %s  %s  %.1f s\n", word, m.place(), m.fingerprint(), note,
		v.took.Seconds())
}
