package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/embedded"
	"penstock/rpc/client"
)

// This file tries every feature at every door, and holds the table of docs/doors.md against what it
// found. A door (door_test.go) is asked in its own words; what it has no words for is no feature of
// it. Everything else must work.

var updateDocs = flag.Bool("update-docs", false, "write the table of docs/doors.md anew")

// question is what a door is asked about one key.
type question struct {
	limit  string // five, dry, queue, visit or owing: see doorLimits
	from   origin
	key    string
	op     string // "take" if empty; peek, reset
	cost   int64
	report bool
	drain  bool
	strict bool
	at     *int64 // ms since 1970
}

// origin says where the limit must be.
type origin uint8

const (
	anywhere  origin = iota
	ofCluster        // among those of --limits
	ofRequest        // in the request
	ofEnvoy          // among those of --envoy-config
)

// answer is what a door says, as far as its words reach.
type answer struct {
	allowed   bool
	remaining int64
	retry     time.Duration // 0: not said
	delay     time.Duration
	shadow    bool // it said that the limit would refuse
}

// errNone says that a door has no words for a question.
var errNone = errors.New("this door has no words for that")

// aDoor is asked questions that belong together, and answers all of them.
type aDoor interface {
	name() string
	ask(all bool, qs ...question) ([]answer, error)
	// fault sends what is in error: "malformed", "oversize" or "unknown". It returns what the door
	// says to that, or errNone if it knows no such fault.
	fault(kind string) error
}

// doorLimits are the limits that all doors are asked about; those that bring theirs along bring the
// same.
const doorLimits = `
limits:
  - {name: five, algorithm: fixed_window, anchor: first_hit, limit: 5, per: 10m}
  - {name: dry, algorithm: fixed_window, anchor: first_hit, limit: 5, per: 10m, dry_run: true}
  - {name: queue, algorithm: leaky_bucket, limit: 1, per: 10m, burst: 4}
  - {name: visit, algorithm: token_bucket, anchor: first_hit, limit: 5, per: 10m, client_time: true}
  - {name: owing, algorithm: gcra, limit: 5, per: 10m, max_debt: 5}
  - {name: talks, algorithm: concurrency, limit: 2, per: 10m}
rules:
  - match: {path: /ruled}
    apply: [{limit: five, key: "{header:X-User}"}, {limit: owing, key: "{header:X-User}"}]
`

const doorEnvoy = `
domain: edge
descriptors:
  - {key: five, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: dry, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 5}}
`

// feature is a row of the table.
type feature struct {
	name string
	try  func(d aDoor, key string) error
}

// one asks one question.
func one(d aDoor, q question) (answer, error) {
	as, err := d.ask(false, q)
	if err != nil {
		return answer{}, err
	}
	return as[0], nil
}

// taken asks so often, one unit each, and wants all of it allowed.
func taken(d aDoor, q question, times int) error {
	q.cost = 1
	for i := range times {
		if a, err := one(d, q); err != nil || !a.allowed {
			return errors.Join(err, fmt.Errorf("request %d: %+v", i+1, a))
		}
	}
	return nil
}

// sixth wants five units and no more.
func sixth(from origin) func(d aDoor, key string) error {
	return func(d aDoor, key string) error {
		q := question{limit: "five", from: from, key: key, cost: 1}
		if err := taken(d, q, 5); err != nil {
			return err
		}
		return wants(d, q, func(a answer) bool { return !a.allowed })
	}
}

// wants asks, and wants the answer to be ok.
func wants(d aDoor, q question, ok func(answer) bool) error {
	a, err := one(d, q)
	if err == nil && !ok(a) {
		err = fmt.Errorf("%+v: %+v", q, a)
	}
	return err
}

func left(n int64) func(answer) bool { return func(a answer) bool { return a.remaining == n } }

var features = []feature{
	{"the cluster's limits, by name", sixth(ofCluster)},
	{"limits that come with the request", sixth(ofRequest)},
	{"limits of Envoy's files", sixth(ofEnvoy)},
	{"a cost", func(d aDoor, key string) error {
		q := question{limit: "five", key: key, cost: 3}
		return errors.Join(wants(d, q, func(a answer) bool { return a.allowed }),
			wants(d, q, func(a answer) bool { return !a.allowed }))
	}},
	{"looking without charging", func(d aDoor, key string) error {
		q := question{limit: "five", key: key, op: "peek"}
		err := wants(d, q, left(5))
		if err != nil {
			return err
		}
		return errors.Join(taken(d, question{limit: "five", key: key}, 1), wants(d, q, left(4)),
			wants(d, q, left(4)))
	}},
	{"giving back (a negative cost)", func(d aDoor, key string) error {
		if _, err := one(d, question{limit: "five", key: key, cost: 3}); err != nil {
			return err
		}
		return wants(d, question{limit: "five", key: key, cost: -2}, left(4))
	}},
	{"reset", func(d aDoor, key string) error {
		if _, err := one(d, question{limit: "five", key: key, cost: 3}); err != nil {
			return err
		}
		return wants(d, question{limit: "five", key: key, op: "reset"}, left(5))
	}},
	{"when to come again", func(d aDoor, key string) error {
		if _, err := one(d, question{limit: "five", key: key, cost: 5}); err != nil {
			return err
		}
		a, err := one(d, question{limit: "five", key: key, cost: 1})
		if err == nil && (a.allowed || a.retry <= 0 || a.retry > 366*24*time.Hour) {
			err = fmt.Errorf("%+v", a)
		}
		return err
	}},
	{"a report of what was spent", func(d aDoor, key string) error {
		if err := wants(d, question{limit: "owing", key: key, cost: 8, report: true},
			func(a answer) bool { return a.allowed }); err != nil {
			return err
		}
		return wants(d, question{limit: "owing", key: key, cost: 1},
			func(a answer) bool { return !a.allowed })
	}},
	{"drain: a refusal takes the rest", func(d aDoor, key string) error {
		if _, err := one(d, question{limit: "visit", key: key, cost: 3, drain: true}); err != nil {
			return err
		}
		return wants(d, question{limit: "visit", key: key, cost: 3, drain: true},
			func(a answer) bool { return !a.allowed && a.remaining == 0 })
	}},
	{"strict: a late refill", func(d aDoor, key string) error {
		minute := time.Minute.Milliseconds()
		at := func(n, cost int64) question {
			ms := n * minute
			return question{
				limit: "visit", key: key, cost: cost, strict: true, drain: true,
				at: &ms,
			}
		}
		if _, err := one(d, at(100, 5)); err != nil {
			return err
		}
		// refused, and from here on it takes ten minutes
		if _, err := one(d, at(105, 1)); err != nil {
			return err
		}
		return errors.Join(wants(d, at(114, 1), func(a answer) bool { return !a.allowed }),
			wants(d, at(124, 1), func(a answer) bool { return a.allowed }))
	}},
	{"the client's time", func(d aDoor, key string) error {
		then, later := int64(1_000_000), int64(1_600_000)
		q := question{limit: "visit", key: key, cost: 5, at: &then}
		if _, err := one(d, q); err != nil {
			return err
		}
		q.at = &later
		return wants(d, q, func(a answer) bool { return a.allowed })
	}},
	{"several keys at once", func(d aDoor, key string) error {
		as, err := d.ask(false, question{limit: "five", key: key, cost: 5},
			question{limit: "five", key: key + "2", cost: 6})
		if err == nil && (!as[0].allowed || as[1].allowed) {
			err = fmt.Errorf("%+v", as)
		}
		return err
	}},
	{"all of them or none", func(d aDoor, key string) error {
		as, err := d.ask(true, question{limit: "five", key: key, cost: 2},
			question{limit: "five", key: key, cost: 4})
		if err != nil {
			return err
		}
		if as[1].allowed {
			return fmt.Errorf("%+v", as)
		}
		// nothing is gone
		as, err = d.ask(true, question{limit: "five", key: key, cost: 2},
			question{limit: "five", key: key, cost: 3})
		if err == nil && !(as[0].allowed && as[1].allowed) {
			err = fmt.Errorf("%+v", as)
		}
		return err
	}},
	{"shadow: says what would be refused", func(d aDoor, key string) error {
		if _, err := one(d, question{limit: "dry", key: key, cost: 5}); err != nil {
			return err
		}
		return wants(d, question{limit: "dry", key: key, cost: 1},
			func(a answer) bool { return a.allowed && a.shadow })
	}},
	{"delay: how long to wait first", func(d aDoor, key string) error {
		q := question{limit: "queue", key: key, cost: 1}
		if _, err := one(d, q); err != nil {
			return err
		}
		return wants(d, q, func(a answer) bool {
			return a.allowed && a.delay > 0 &&
				a.delay <= 10*time.Minute
		})
	}},
	{"an unknown limit is an error", faulty("unknown")},
	{"malformed input is an error, and charges nothing", faulty("malformed")},
	{"too large input is an error, and charges nothing", faulty("oversize")},
}

// faulty wants an error of a door, and that its keys are as before.
func faulty(kind string) func(d aDoor, key string) error {
	return func(d aDoor, _ string) error {
		err := d.fault(kind)
		switch {
		case errors.Is(err, errNone):
			return err
		case err == nil:
			return errors.New("no error")
		}
		return wants(d, question{limit: "five", key: faultKey, op: "peek"}, left(5))
	}
}

// faultKey is what faulty requests are about.
const faultKey = "faulty"

// Promise: docs/doors.md says which door offers which feature, and each of them has just been
// tried.
func TestDoors(t *testing.T) {
	open := doorsAt(t, nil)
	names := []string{}
	for _, d := range open {
		names = append(names, d.name())
	}
	rows := [][]string{append([]string{"feature"}, names...)}
	for n, f := range features {
		row := []string{f.name}
		for i, d := range open {
			row = append(row, tried(t, f.name+", "+d.name(), fmt.Sprintf("%s-%d", names[i], n),
				func(key string) error { return f.try(d, key) }))
		}
		rows = append(rows, row)
	}
	row := []string{"rules: attributes instead of limit and key"}
	for _, d := range open {
		row = append(row, tried(t, row[0]+", "+d.name(), "ruled "+d.name(),
			func(key string) error { return byRules(d, key) }))
	}
	rows = append(rows, row)

	row = []string{"reservations that are settled later"}
	for _, d := range open {
		row = append(row, tried(t, row[0]+", "+d.name(), "reserved "+d.name(),
			func(key string) error { return reservation(d, key) }))
	}
	rows = append(rows, row)

	row = []string{"counts together with the others"}
	for _, d := range open {
		row = append(row, tried(t, row[0]+", "+d.name(), "together "+d.name(),
			func(key string) error { return together(d, open, key) }))
	}
	rows = append(rows, row)
	for _, protection := range []string{"TLS", "a token", "Unix sockets"} {
		row := []string{protection}
		protected := doorsAt(t, protections[protection])
		for _, d := range protected {
			if _, local := d.(*insideDoor); local {
				row = append(row, "–")
				continue
			}
			row = append(row, tried(t, protection+", "+d.name(), "protected "+d.name(),
				func(key string) error {
					err := sixth(anywhere)(d, key)
					if s, ok := d.(stranger); ok && err == nil && protection != "Unix sockets" {
						err = s.keptOut()
					}
					return err
				}))
		}
		rows = append(rows, row)
	}
	rows = append(rows, slowRow(t, open))
	compareTable(t, rows)
}

// tried is the cell of a try. On a machine that is too busy for a node to answer in time, the
// limit's on_error does; so what fails is tried with two more keys.
func tried(t *testing.T, what, key string, try func(key string) error) string {
	t.Helper()
	var err error
	for n := range 3 {
		switch err = try(fmt.Sprintf("%s-%d", key, n)); {
		case err == nil:
			return "yes"
		case errors.Is(err, errNone):
			return "–"
		}
	}
	t.Errorf("%s: %v", what, err)
	return "FAILED"
}

// together takes three of five at d, and looks for the two that are left at another door that asks
// about the same limit.
func together(d aDoor, all []aDoor, key string) error {
	for _, from := range []origin{ofCluster, ofRequest, ofEnvoy} {
		q := question{limit: "five", from: from, key: key, cost: 3}
		if _, err := one(d, q); errors.Is(err, errNone) {
			continue
		} else if err != nil {
			return err
		}
		for _, other := range all {
			twin, ok := other.(interface {
				twin(d aDoor, q question) question
			})
			if other == d || !ok {
				continue
			}
			w := twin.twin(d, q)
			w.op, w.cost = "peek", 0
			return wants(other, w, left(2))
		}
	}
	return errors.New("no other door asks about the same limit")
}

// slowRow is what happens to a client that sends half a request and waits.
func slowRow(t *testing.T, all []aDoor) []string {
	row := make([]string, len(all)+1)
	row[0] = "input that comes too slowly is cut off"
	done := make(chan string)
	for i, d := range all {
		go func() {
			row[i+1] = tried(t, row[0]+", "+d.name(), "", func(string) error {
				if s, ok := d.(interface{ slow() error }); ok {
					return s.slow()
				}
				return errNone
			})
			done <- d.name()
		}()
	}
	for range all {
		<-done
	}
	return row
}

// cutOff sends the beginning of something and waits for the other side to hang up.
func cutOff(network, address, begin string) error {
	conn, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.WriteString(conn, begin); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return errors.New("two minutes later it still waits")
	}
	return nil // however it hung up
}

const (
	tableBegin = "<!-- The table is generated: go test ./cmd/node -run TestDoors -update-docs -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

func compareTable(t *testing.T, rows [][]string) {
	t.Helper()
	var table strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&table, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			table.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	file := filepath.Join("..", "..", "docs", "doors.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	was, after, ended := strings.Cut(rest, tableEnd)
	switch {
	case !found || !ended:
		t.Fatalf("%s has no place for the table", file)
	case was == table.String():
	case *updateDocs && !t.Failed():
		if err := os.WriteFile(file, []byte(before+tableBegin+table.String()+tableEnd+after),
			0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is stale (-update-docs writes it anew). It should say\n%s", file,
			table.String())
	}
}

// doorsAt starts a node that a change has been made to, and a program with a node inside that has
// joined it.
func doorsAt(t *testing.T, change func(*testing.T, *settings) *protection) []aDoor {
	t.Helper()
	dir := t.TempDir()
	writeEnvoy(t, dir)
	limits := write(t, doorLimits)
	p := new(protection)
	r, _ := startNode(t, func(s *settings) {
		s.Name, s.Limits, s.EnvoyConfig, s.HTTP, s.Redis = "node", limits, dir, "127.0.0.1:0",
			"127.0.0.1:0"
		if change != nil {
			p = change(t, s)
		}
	})
	r.waitReady(t)
	p.node = r
	return p.doors(t)
}

// insideDoor is a node inside a Go program.
type insideDoor struct{ node *embedded.Node }

func (d *insideDoor) name() string { return "embedded" }

func (d *insideDoor) ask(all bool, qs ...question) ([]answer, error) {
	if all || len(qs) != 1 {
		return nil, errNone
	}
	return askLimiter(d.node, qs[0])
}

func (d *insideDoor) fault(kind string) error { return faultLimiter(d.node, kind) }

// twin: what others charge to a limit of the cluster, it sees.
func (d *insideDoor) twin(_ aDoor, q question) question { return q }

// askLimiter asks by the interface that all Go programs have.
func askLimiter(l client.Limiter, q question) ([]answer, error) {
	if q.from == ofRequest || q.from == ofEnvoy || q.op == "reset" {
		return nil, errNone
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var d client.Decision
	var err error
	if q.op == "peek" {
		d, err = l.Peek(ctx, q.limit, q.key, q.cost)
	} else {
		r := client.Request{
			Limit: q.limit, Key: q.key, Cost: q.cost, Report: q.report,
			Drain: q.drain, Strict: q.strict,
		}
		if q.at != nil {
			r.At = time.UnixMilli(*q.at)
		}
		d, err = l.Do(ctx, r)
	}
	return []answer{{d.Allowed, d.Remaining, max(0, d.RetryAfter), d.Delay, d.Shadow}}, err
}

func faultLimiter(l client.Limiter, kind string) error {
	q := question{limit: "five", key: faultKey, cost: 1}
	switch kind {
	case "unknown":
		q.limit = "nowhere"
	case "oversize":
		q.key = strings.Repeat("k", 1025)
	case "malformed":
		q.key = ""
	}
	_, err := askLimiter(l, q)
	return err
}
