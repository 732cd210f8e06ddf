package servers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"penstock/bench/contest"
	"penstock/ring"
	"penstock/rpc/client"
)

// The figures of a node that joins.
const (
	wholeIn   = "whole after"
	heldIn    = "holds its part after"
	p99Before = "p99 before"
	slowdown  = "p99 meanwhile, of that before"
	itsKeys   = "keys of the new node"
)

const (
	joinRate    = 2000 // checks a second, before and meanwhile
	joinCallers = 64
	joinMost    = 5 * time.Minute
	// How often the nodes' metrics are read, before and meanwhile: four pages ten times a second
	// cost as much as half of the checks, and made p99 meanwhile 1.8 times as long.
	lookEvery = 250 * time.Millisecond
	// a node's table has room for more keys than it gets: copies of others' keys are in it too
	joinBudget = 160
)

// Join is a node that joins three which have so many keys: how long it takes until the four are
// whole, and what clients notice meanwhile.
func Join(keys ...int) Row {
	row := Row{
		Name: "join", Title: "A node joins three that have keys, at 2000 checks a second",
		points: numbered(func(n int) Point {
			return Point{Callers: joinCallers, Items: 1, Rate: joinRate, Each: true, Keys: n}
		}, keys...),
		times:   4,
		measure: askWhileJoining,
		Tables: []contest.Table{
			{
				Title: "Seconds until all four are whole", Short: "whole after, s", Figure: wholeIn,
				Digits: 2,
			},
			{
				Title: "Seconds until the new node decides for its part of the keys",
				Short: "holds its part after, s", Figure: heldIn, Digits: 2,
			},
			{Title: "p99 latency before, µs", Short: "p99 before, µs", Figure: p99Before},
			{Title: "p99 latency meanwhile, µs", Short: "meanwhile, µs", Figure: p99},
			{
				Title: "p99 latency meanwhile, of that before", Short: "of that before",
				Figure: slowdown, Digits: 2,
			},
			{Title: "Calls that failed, %", Short: "failed, %", Figure: failures, Digits: 2},
			{Title: "Calls that nobody was free to send, %", Figure: unsent, Digits: 2},
			{Title: "Keys of the new node", Short: "its keys", Figure: itsKeys},
		},
	}
	for _, n := range keys {
		row.contestants = append(row.contestants, contestant{
			name: Base, start: threeWithKeys(n), fresh: true,
			points: []Point{{Name: fmt.Sprint(n)}},
		})
		job := contest.Job{Contestant: Base, Point: fmt.Sprint(n)}
		row.Aims = append(row.Aims,
			contest.Aim{
				// ten seconds for a million keys, and a hundred for ten times as many
				Work: fmt.Sprintf("a node joins three with %d keys: until all are whole", n),
				Job:  job, Figure: wholeIn, Better: contest.Less, Want: float64(n) / 1e5, Unit: "s",
			},
			contest.Aim{
				Work: "… p99 meanwhile, of that before", Job: job, Figure: slowdown,
				Better: contest.Less, Want: 1.5, Unit: "×",
			})
	}
	return row
}

// threeWithKeys starts three nodes and charges so many keys, each once.
func threeWithKeys(n int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r := &running{}
		addrs, err := freePorts("127.0.0.1", 16)
		if err != nil {
			return r, err
		}
		budget := fmt.Sprintf("%dMiB", max(256, n*joinBudget>>20))
		var doors []string
		prepare := func() (start func() error, err error) {
			i := len(r.servers)
			gossip, peer, door, page := addrs[4*i], addrs[4*i+1], addrs[4*i+2], addrs[4*i+3]
			s, begin, err := p.startLater("penstock", "serve", "--name", fmt.Sprintf("n%d", i+1),
				"--gossip", gossip, "--peer", peer, "--grpc", door, "--http", page,
				"--redis", "off", "--limits", "limits.yaml", "--memory", budget,
				"--join", addrs[0])
			if err != nil {
				return nil, err
			}
			r.servers = append(r.servers, s)
			return func() error {
				r.pages = append(r.pages, "http://"+page+"/metrics")
				doors = append(doors, door)
				if err := begin(); err != nil {
					return err
				}
				return s.awaitListener(door)
			}, nil
		}
		for range 3 {
			start, err := prepare()
			if err == nil {
				err = start()
			}
			if err != nil {
				return r, err
			}
		}
		if r.join, err = prepare(); err != nil {
			return r, err
		}
		if err := r.awaitWhole(); err != nil {
			return r, err
		}
		if err := charge(doors, n); err != nil {
			return r, err
		}
		return r, r.askTakes(doors, "slow", client.Config{})
	}
}

func joinKey(i int) string { return fmt.Sprintf("account:%09d", i) }

// charge takes one unit of each key, through all doors at once.
func charge(doors []string, keys int) error {
	failed := make(chan error, len(doors))
	for id, door := range doors {
		go func() { failed <- chargeSome(door, id*keys/len(doors), (id+1)*keys/len(doors)) }()
	}
	var err error
	for range doors {
		if e := <-failed; e != nil {
			err = e
		}
	}
	return err
}

func chargeSome(door string, from, to int) error {
	const message = 1000
	c, err := client.New(client.Config{Targets: []string{door}})
	if err != nil {
		return err
	}
	defer c.Close()
	asked := make([]client.Request, 0, message)
	for i := from; i < to; i++ {
		asked = append(asked, client.Request{Limit: "slow", Key: joinKey(i), Cost: 1})
		if len(asked) < message && i < to-1 {
			continue
		}
		out, err := c.DoAll(context.Background(), asked)
		if err != nil {
			return err
		}
		for _, d := range out {
			if !d.Allowed {
				return errDenied
			}
		}
		asked = asked[:0]
	}
	return nil
}

// askWhileJoining asks at a rate for a while, and goes on while a node joins, until all are whole.
func askWhileJoining(
	r *running, p Point, d time.Duration, progress io.Writer,
) (map[string]float64, error) {
	load(r, p, d/4)
	stop := r.watch()
	before := load(r, p, d)
	stop()
	if before.failed > 0 {
		return nil, fmt.Errorf("calls fail before the node joins: %w", before.fault)
	}
	meter, began := contest.NewMeter(), time.Now()
	used, own := r.cpu(), ownCPU()
	meanwhile, took, err := loadWhileJoining(r, p)
	if err != nil {
		return nil, err
	}
	if meanwhile.failed > 0 {
		fmt.Fprintf(progress, "%d of %d calls failed, the last with: %v\n", meanwhile.failed,
			len(meanwhile.took), meanwhile.fault)
	}
	text, err := read(r.pages[3])
	if err != nil {
		return nil, err
	}
	all := float64(len(meanwhile.took) + len(meanwhile.unsent))
	figures := map[string]float64{
		wholeIn: took.Seconds(), heldIn: r.heldAt.Sub(began).Seconds(),
		p99Before: before.quantile(0.99), p99: meanwhile.quantile(0.99),
		slowdown: meanwhile.quantile(0.99) / before.quantile(0.99),
		failures: 100 * float64(meanwhile.failed) / all,
		unsent:   100 * float64(len(meanwhile.unsent)) / all,
		itsKeys:  value(text, "penstock_table_keys"),
	}
	if others := meter.Others(r.cpu() - used + ownCPU() - own); others >= 0 {
		figures[contest.Others] = others
	}
	return figures, nil
}

// loadWhileJoining has a node join, and callers ask until all are whole, which took so long.
func loadWhileJoining(r *running, p Point) (got answers, took time.Duration, err error) {
	began, whole := time.Now(), make(chan error, 1)
	go func() {
		err := r.join()
		if err == nil {
			err = r.awaitWhole()
		}
		took = time.Since(began)
		whole <- err
	}()
	for {
		got.add(load(r, p, 250*time.Millisecond))
		select {
		case err := <-whole:
			return got, took, err
		default:
		}
	}
}

// awaitWhole waits until each node counts all others as members, somebody holds each partition,
// with all its copies, nothing is on its way from one to another, and each holds its part.
func (r *running) awaitWhole() error {
	var why error
	for began := time.Now(); time.Since(began) < joinMost; time.Sleep(lookEvery) {
		if why = r.whole(); why == nil {
			return nil
		}
	}
	return fmt.Errorf("after %v: %w", joinMost, why)
}

// watch reads a page as often as awaitWhole does, until stop is called: clients are asked under the
// same circumstances before a node joins and meanwhile.
func (r *running) watch() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			case <-time.After(lookEvery):
				_, _ = read(r.pages[0])
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// whole says why the nodes are not whole. As long as the last one has not its part, no other page
// is read, and never two at once: four pages are some 10 ms of work.
func (r *running) whole() error {
	texts := make([]string, len(r.pages))
	for i := len(r.pages) - 1; i >= 0; i-- {
		if i < len(r.pages)-1 {
			time.Sleep(lookEvery)
		}
		var err error
		if texts[i], err = read(r.pages[i]); err != nil {
			return err
		}
		if i == len(r.pages)-1 && !holdsPart(texts[i], len(texts)) {
			r.heldAt = time.Time{}
			return fmt.Errorf("n%d holds too few partitions", i+1)
		}
	}
	if err := held(texts); err != nil {
		r.heldAt = time.Time{}
		return err
	}
	if r.heldAt.IsZero() {
		r.heldAt = time.Now()
	}
	for i, text := range texts {
		for _, x := range []struct {
			name string
			want float64
		}{
			{`penstock_members{state="active"}`, float64(len(texts))},
			{`penstock_partitions{state="giving"}`, 0},
			{"penstock_unreplicated_partitions", 0},
			{"penstock_underreplicated_partitions", 0},
		} {
			if got := value(text, x.name); got != x.want {
				return fmt.Errorf("n%d has %s %v, want %v", i+1, x.name, got, x.want)
			}
		}
	}
	return nil
}

// held says why not all partitions are held, or not every node holds its part.
func held(texts []string) error {
	sum := 0.0
	for _, text := range texts {
		sum += value(text, partitionsHeld)
	}
	if sum != ring.Partitions {
		return fmt.Errorf("%v partitions are held, want %v", sum, ring.Partitions)
	}
	for i, text := range texts {
		if !holdsPart(text, len(texts)) {
			return fmt.Errorf("n%d holds too few partitions", i+1)
		}
	}
	return nil
}

const partitionsHeld = `penstock_partitions{state="held"}`

// holdsPart reports whether a node holds at least half of what would be its part if each of so many
// had the same.
func holdsPart(text string, nodes int) bool {
	return value(text, partitionsHeld) >= ring.Partitions/float64(nodes)/2
}

// pages are read within a moment, or not at all.
// Their nodes do not compress them, which would cost more than writing them does.
var pages = &http.Client{
	Timeout: 5 * time.Second, Transport: &http.Transport{DisableCompression: true},
}

func read(page string) (string, error) {
	answer, err := pages.Get(page)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// value is the number behind a name at the beginning of a line of text; 0 if there is none.
func value(text, name string) float64 {
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`)
	if found := line.FindStringSubmatch(text); found != nil {
		x, _ := strconv.ParseFloat(found[1], 64)
		return x
	}
	return 0
}
