package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
	"penstock/limiter/policy"
)

// nodes reads a set of nodes: n1 n2, n3..n7, all, or owner(key), which is the node that owns a key
// when the world begins.
func (d *draft) nodes(text string) (who []int, err error) {
	for _, word := range strings.Fields(text) {
		first, last, isRange := strings.Cut(word, "..")
		switch {
		case word == "all":
			for i := range d.plan.machines {
				who = append(who, i)
			}
		case strings.HasPrefix(word, "owner(") && strings.HasSuffix(word, ")"):
			if len(d.plan.machines) == 0 {
				return nil, errors.New("nobody owns a key: there are no nodes")
			}
			d.owned = true
			key := word[len("owner(") : len(word)-1]
			who = append(who, d.index(d.plan.firstOwner(key)))
		default:
			if !isRange {
				last = first
			}
			from, to := d.index(first), d.index(last)
			if from < 0 || to < from {
				return nil, fmt.Errorf(
					"%.40q is not a node; there are n1 to n%d, ranges like n1..n3, all, and "+
						"owner(key)", word, len(d.plan.machines))
			}
			for i := from; i <= to; i++ {
				who = append(who, i)
			}
		}
	}
	slices.Sort(who)
	if len(who) == 0 {
		return nil, errors.New("names no node")
	}
	return slices.Compact(who), nil
}

// index is the number of a node, or -1.
func (d *draft) index(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "n"))
	if err != nil || n < 1 || n > len(d.plan.machines) || machineID(n-1) != name {
		return -1
	}
	return n - 1
}

// sets returns what reads a field by means of read, and writes it where at says.
func sets[T, V any](read func(ast.Node) (V, error), at func(*T) *V) func(*draft, ast.Node,
	*T) error {
	return func(_ *draft, n ast.Node, into *T) (err error) {
		*at(into), err = read(n)
		return err
	}
}

// spanOf returns what reads a span of time from least to most.
func spanOf(least, most time.Duration) func(ast.Node) (time.Duration, error) {
	return func(n ast.Node) (time.Duration, error) { return duration(n, least, most) }
}

// countOf returns what reads a number from least to most.
func countOf(least, most int64) func(ast.Node) (int64, error) {
	return func(n ast.Node) (int64, error) { return between(n, least, most) }
}

// wordOf returns what reads one of known.
func wordOf(known ...string) func(ast.Node) (string, error) {
	return func(n ast.Node) (string, error) { return word(n, known...) }
}

// oneLine reads a text of one line.
func oneLine(n ast.Node) (string, error) {
	text, err := policy.Text(n)
	if err == nil && (text == "" || strings.ContainsAny(text, "\r\n")) {
		err = errors.New("must be a line of text")
	}
	return text, err
}

// duration reads a span of time, like 250us, 1.5s, 10m or 2d12h.
func duration(n ast.Node, least, most time.Duration) (time.Duration, error) {
	const forms = "write 250us, 1.5s, 10m, 2h or 3d"
	if _, bare := n.(*ast.IntegerNode); bare && n.GetToken().Value != "0" {
		return 0, errors.New("has no unit; " + forms)
	}
	text := n.GetToken().Value
	if text != "0" {
		var err error
		if text, err = policy.Text(n); err != nil {
			return 0, err
		}
	}
	d, rest := time.Duration(0), text
	if days, after, found := strings.Cut(text, "d"); found {
		count, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%.40q is no span of time; %s", text, forms)
		}
		d, rest = time.Duration(count)*24*time.Hour, after
	}
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil {
			return 0, fmt.Errorf("%.40q is no span of time; %s", text, forms)
		}
		d += more
	}
	if d < least || d > most {
		return 0, fmt.Errorf("is %v; %v to %v are accepted", d, least, most)
	}
	return d, nil
}

// rate reads how many requests come in which time: 200/s, 5/m, 1/h.
func rate(n ast.Node) (float64, error) {
	text, err := policy.Text(n)
	if err != nil {
		return 0, fmt.Errorf("is %s; write requests per time: 200/s, 30/m or 5/h",
			policy.Describe(n))
	}
	count, unit, _ := strings.Cut(text, "/")
	per := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	x, err := strconv.ParseFloat(count, 64)
	if err != nil || per == 0 || !(x > 0) || x/per > 1e7 {
		return 0, fmt.Errorf("%.40q is no rate up to 10000000/s; write 200/s, 30/m or 5/h", text)
	}
	return x / per, nil
}

// fraction reads a share of a whole: 1%, or 0.01.
func fraction(n ast.Node) (float64, error) {
	text := n.GetToken().Value
	number, percent := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(number, 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x >= 0 && x <= 1) {
		return 0, fmt.Errorf("%.40q is no part of a whole; write 1%% or 0.01, up to 100%%", text)
	}
	return x, nil
}

// between reads a whole number within bounds.
func between(n ast.Node, least, most int64) (int64, error) {
	x, err := policy.Number(n)
	if err == nil && (x < least || x > most) {
		err = fmt.Errorf("is %d; %d to %d are accepted", x, least, most)
	}
	return x, err
}

// word reads one of several words.
func word(n ast.Node, words ...string) (string, error) {
	text, err := policy.Text(n)
	if err == nil && !slices.Contains(words, text) {
		err = fmt.Errorf("%.40q is unknown; there is: %s", text, strings.Join(words, ", "))
	}
	return text, err
}

// cmpNode is the first of the nodes that is there.
func cmpNode(nodes ...ast.Node) ast.Node {
	return nodes[slices.IndexFunc(nodes, func(n ast.Node) bool { return n != nil })]
}

// unknown is what the reference does not know about a limit, so that nobody could judge it; empty
// if there is nothing.
func unknown(s *limiter.Limit) string {
	switch {
	case s.Algorithm == limiter.StatedWindow, s.Algorithm == limiter.StatedBucket:
		return s.Algorithm.String()
	case s.Drain && s.Algorithm != limiter.TokenBucket:
		return "drain of a " + s.Algorithm.String()
	case s.Sessions:
		return "sessions"
	case s.ClientTime:
		return "clients' time"
	}
	return ""
}

// away is one entry of a scenario's distances while it is read.
type away struct {
	from, to []int
	both     bool
	more     time.Duration
}

var awayFields = []field[away]{
	{"way", func(d *draft, n ast.Node, a *away) (err error) {
		a.from, a.to, a.both, err = d.sides(n)
		return err
	}},
	{"more", sets(spanOf(0, time.Minute), func(a *away) *time.Duration { return &a.more })},
}

// distance reads one entry of the distances: messages from some nodes to others take longer.
func (d *draft) distance(n ast.Node) {
	var a away
	places := fields(d, n, "a distance", awayFields, &a)
	for _, name := range []string{"way", "more"} {
		if places != nil && places[name] == nil {
			d.page.Fault(n, name, "is missing")
		}
	}
	for _, i := range a.from {
		for _, k := range a.to {
			d.plan.distances = append(d.plan.distances, distance{i, k, a.more})
			if a.both {
				d.plan.distances = append(d.plan.distances, distance{k, i, a.more})
			}
		}
	}
}
