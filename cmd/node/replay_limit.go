package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/limiter"
	"penstock/sim"
)

type policyReplayVerb struct {
	limitsFile
	Name    string `arg:"" name:"name" complete:"file" help:"Name of the limit that every request falls under; without it, what the rules of the files say."`
	Log     string `arg:"" optional:"" complete:"file" help:"A web server's log, or another of --format."`
	Key     string `help:"What a request counts for under the limit: a text with fields of the log in braces. Default: {ip}, and {key} in logs of a Redis."`
	Cost    string `help:"What a request costs, likewise. Default: 1, and {cost} in logs of a Redis."`
	Format  string `default:"common" enum:"common,json,envoy,redis-cell,redis-incr" help:"common (also combined), json, envoy (its default text), redis-cell or redis-incr (MONITOR's output, of CL.THROTTLE or of INCR and INCRBY)."`
	Time    string `help:"json: the field with the time. Default: time."`
	Refused string `placeholder:"TEXT=VALUE" help:"What lines of refused requests have; the answer then says what changes. Default: envoy: {status}=429; redis-cell: what it has decided by the numbers of its commands."`
	Skip    bool   `help:"Skip lines that cannot be read, and count them."`
	Memory  size   `default:"256MiB" help:"Budget of the table of counters."`
	HTML    string `name:"html" type:"path" placeholder:"FILE" help:"Write the answer as a page as well, with plots."`

	Attribute map[string]string `short:"a" mapsep:"none" placeholder:"NAME=TEXT" help:"For rules: what of a request is an attribute, a text with fields of the log in braces, as in user={auth.sub}. Default: the field of that name."`
	output
}

// replayed is what a limit would have done.
type replayed struct {
	Requests   int64       `json:"requests"`
	Allowed    int64       `json:"allowed"`
	Denied     int64       `json:"denied"`
	Delayed    int64       `json:"delayed"` // of those allowed: their callers wait first
	Longest    int64       `json:"longest_delay_ms"`
	Keys       int         `json:"keys"`
	KeysDenied int         `json:"keys_denied"`
	Skipped    int         `json:"skipped_lines"`
	Most       []deniedKey `json:"most_denied"` // ten at most
	// of a limit with a parent: how many each level has refused
	RefusedBy []refusedBy `json:"refused_by,omitempty"`
	Changed   *changed    `json:"changed,omitempty"`
}

type refusedBy struct {
	Limit   string `json:"limit"`
	Refused int64  `json:"refused"`
}

type deniedKey struct {
	Key     string `json:"key"`
	Denied  int64  `json:"denied"`
	Delayed int64  `json:"delayed"` // of those allowed
	Allowed int64  `json:"allowed"`
}

func (v *policyReplayVerb) Run(sh shell) error {
	switch {
	case v.Log == "" && v.Key != "":
		return errors.New("--key: is for one limit, by its name; rules say themselves what a " +
			"request counts for")
	case v.Log == "":
		return v.byRules(sh)
	case len(v.Attribute) > 0:
		return errors.New("--attribute: is for rules; leave out the name of the limit")
	}
	l, above, err := v.find(v.Name)
	if err != nil {
		return err
	}
	file, err := openLog(v.Log, sh)
	if err != nil {
		return err
	}
	defer file.close()
	if err := replayable(l); err != nil {
		return err
	}
	log, change, err := v.log()
	if err != nil {
		return err
	}
	decide := decideAlone(l, int64(v.Memory))
	if len(above) > 0 {
		if decide, err = decideTree(l, above, int64(v.Memory)); err != nil {
			return err
		}
	}
	var line timeline
	out, err := replayLog(log, decide, file, &line, change)
	if err != nil {
		return err
	}
	if len(above) == 0 { // it is the only one
		out.RefusedBy = nil
	}
	page := replayPage{
		log: file.name, limit: l.Name, headline: out.headline(), changed: out.Changed,
	}
	if rows := out.table(); rows != nil {
		page.tables = append(page.tables, rows)
	}
	if err := v.writePage(page, &line); err != nil {
		return err
	}
	return v.print(sh.out, out, func(w io.Writer) error { return out.write(w) })
}

// replayable says why a log cannot be decided on under l.
func replayable(l *limiter.Limit) error {
	switch {
	case l.ClientTime:
		return fmt.Errorf("limit %q goes by its clients' clocks, which a log does not know", l.Name)
	case l.Algorithm == limiter.Concurrency:
		return fmt.Errorf("limit %q counts what is under way, and a log does not say when a "+
			"request was done", l.Name)
	}
	return nil
}

// log says how the log is read, and what changes by it.
func (v *policyReplayVerb) log() (log sim.Log, change *changed, err error) {
	usual := "{ip}"
	if strings.HasPrefix(v.Format, "redis") {
		usual = "{key}"
	}
	log = sim.Log{
		Format: v.Format, Time: v.Time, Key: cmp.Or(v.Key, usual), Cost: v.Cost, Skip: v.Skip,
	}
	log.Beside, change, err = v.changes()
	return log, change, err
}

// decideAlone decides under a limit without a parent.
func decideAlone(l *limiter.Limit, memory int64) decideLogged {
	table := limiter.NewTable(limiter.TableConfig{Bytes: memory})
	return func(at limiter.Instant, key string, cost int64) (ruling, error) {
		rule := l.For(key)
		if rule.Unlimited {
			return ruling{}, nil
		}
		d := table.Take(at, rule, key, limiter.Hash(key), cost)
		if d.Allowed {
			return ruling{delay: d.Delay}, nil
		}
		return ruling{refuses: l.Name}, nil
	}
}

// ruling is what becomes of a request of a log.
type ruling struct {
	refuses string        // name of the limit that refuses it; empty: none does
	delay   time.Duration // of a request that is admitted: its caller waits so long first
}

// decideLogged decides on a request of a log.
type decideLogged func(at limiter.Instant, key string, cost int64) (ruling, error)

// replayLog decides on all requests of a log, at their times.
func replayLog(
	log sim.Log, decide decideLogged, file *openedLog, line *timeline, change *changed,
) (out replayed, err error) {
	keys := map[string]*deniedKey{}
	refused := map[string]int64{}
	var wrong error
	out.Changed = change
	see := func(at time.Time, key, beside string, cost int64) {
		k := keys[key]
		if k == nil {
			k = &deniedKey{Key: key}
			keys[key] = k
		}
		out.Requests++
		r, err := decide(limiter.Instant(at.UnixNano()), key, cost)
		if err == nil {
			err = change.count(at, beside, cost, r.refuses != "")
		}
		if err != nil {
			wrong = cmp.Or(wrong, err)
			return
		}
		line.count(at, r)
		switch {
		case r.refuses != "":
			out.Denied++
			k.Denied++
			refused[r.refuses]++
			return
		case r.delay > 0:
			out.Delayed++
			k.Delayed++
			out.Longest = max(out.Longest, r.delay.Milliseconds())
		}
		out.Allowed++
		k.Allowed++
	}
	out.Skipped, err = log.Read(file.name, file, see)
	if err = cmp.Or(err, wrong); err != nil {
		return out, err
	}
	for _, by := range slices.Sorted(maps.Keys(refused)) {
		out.RefusedBy = append(out.RefusedBy, refusedBy{by, refused[by]})
	}
	out.sum(keys)
	return out, nil
}

// sum counts the keys, and has those denied most in front.
func (r *replayed) sum(keys map[string]*deniedKey) {
	r.Keys, r.Most = len(keys), []deniedKey{}
	for _, k := range keys {
		if k.Denied > 0 {
			r.KeysDenied++
		}
		if k.Denied+k.Delayed > 0 {
			r.Most = append(r.Most, *k)
		}
	}
	slices.SortFunc(r.Most,
		func(a, b deniedKey) int {
			return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Delayed, a.Delayed),
				cmp.Compare(a.Key, b.Key),
			)
		})
	r.Most = r.Most[:min(10, len(r.Most))]
}

func (r *replayed) write(w io.Writer) error {
	fmt.Fprintln(w, r.headline())
	r.Changed.write(w)
	writeDelayed(w, r.Delayed, r.Longest)
	if r.Skipped > 0 {
		fmt.Fprintf(w, "%s lines could not be read\n", thousands(int64(r.Skipped)))
	}
	for _, by := range r.RefusedBy {
		fmt.Fprintf(w, "limit %s has refused %s\n", by.Limit, thousands(by.Refused))
	}
	if rows := r.table(); rows != nil {
		return columns(w, rows)
	}
	return nil
}

func (r *replayed) headline() string {
	return fmt.Sprintf("%s requests of %s keys: %s allowed, %s denied (%s keys)",
		thousands(r.Requests), thousands(int64(r.Keys)), thousands(r.Allowed), thousands(r.Denied),
		thousands(int64(r.KeysDenied)))
}

// table has the keys that were denied and delayed most; nil: none was.
func (r *replayed) table() [][]string {
	if len(r.Most) == 0 {
		return nil
	}
	rows := [][]string{{"DENIED", "DELAYED", "ALLOWED", "KEY"}}
	for _, k := range r.Most {
		rows = append(rows, []string{
			thousands(k.Denied), thousands(k.Delayed), thousands(k.Allowed), shown(k.Key),
		})
	}
	return withoutColumn(rows, 1, r.Delayed == 0)
}

// writeDelayed says how many callers wait first; nothing if none does.
func writeDelayed(w io.Writer, delayed, longest int64) {
	if delayed > 0 {
		fmt.Fprintf(w, "of those allowed, %s are delayed, by %v at most\n", thousands(delayed),
			time.Duration(longest)*time.Millisecond)
	}
}

// withoutColumn leaves a column of a table out, if it is empty.
func withoutColumn(rows [][]string, column int, empty bool) [][]string {
	if empty {
		for i := range rows {
			rows[i] = slices.Delete(rows[i], column, column+1)
		}
	}
	return rows
}
