package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
)

// draft is a limit while its fields are read.
type draft struct {
	spec      limiter.Spec
	per       string
	overrides []limiter.Override

	anchored, noBurst bool // anchor is given; burst is given as 0
}

// finish makes the limit. An error is a *limiter.SpecError.
func (d *draft) finish() (*limiter.Limit, error) {
	if d.noBurst && d.spec.Algorithm != limiter.LeakyBucket {
		return nil, &limiter.SpecError{
			Field:  "burst",
			Reason: "must be at least 1; leave it out to have the limit",
		}
	}
	if !d.anchored {
		d.spec.Anchor = limiter.DefaultAnchor(d.spec.Algorithm)
	}
	if d.per != "" {
		if err := d.spec.ReadPer(d.per); err != nil {
			return nil, &limiter.SpecError{Field: "per", Reason: err.Error()}
		}
	}
	return limiter.New(d.spec, d.overrides...)
}

// limitField is a field that a limit may have, and what becomes of its value.
type limitField struct {
	name string
	read func(v value, d *draft) error
}

// limitFields are all of them, in the order in which errors list them.
var limitFields = []limitField{
	{"name", func(v value, d *draft) (err error) {
		d.spec.Name, err = v.text()
		if err == nil && d.spec.Name == "" {
			err = errors.New("is empty; give the limit a name")
		}
		return err
	}},
	{"algorithm", func(v value, d *draft) (err error) {
		text, err := v.text()
		if err != nil {
			return fmt.Errorf("is %s; %s are accepted", describe(v.node), limiter.AlgorithmNames())
		}
		var known bool
		if d.spec.Algorithm, known = limiter.AlgorithmNamed(text); !known {
			return fmt.Errorf("%q is unknown; %s are accepted", text, limiter.AlgorithmNames())
		}
		return nil
	}},
	{"limit", func(v value, d *draft) (err error) { d.spec.Limit, err = v.number(); return err }},
	{"per", func(v value, d *draft) error {
		if _, bare := v.node.(*ast.IntegerNode); bare {
			return errors.New("has no unit; " + limiter.PerForms)
		}
		text, err := v.text()
		if err != nil {
			return err
		}
		// what a calendar word means depends on the other fields
		if d.per = text; !isCalendar(text) {
			_, err = limiter.ParsePer(text)
		}
		return err
	}},
	{"time_zone", func(v value, d *draft) (err error) {
		d.spec.TimeZone, err = v.text()
		if err == nil && d.spec.TimeZone == "" {
			err = errors.New("is empty; leave it out for UTC")
		}
		return err
	}},
	{"burst", func(v value, d *draft) (err error) {
		d.spec.Burst, err = v.number()
		d.noBurst = err == nil && d.spec.Burst == 0
		return err
	}},
	{"anchor", func(v value, d *draft) (err error) {
		d.anchored = true
		d.spec.Anchor, err = word(v, []choice[limiter.Anchor]{
			{"epoch", limiter.Epoch},
			{"first_hit", limiter.FirstHit},
		})
		return err
	}},
	{"count_rejected", func(v value, d *draft) (err error) {
		d.spec.CountRejected, err = v.flag()
		return err
	}},
	{"min_gap", func(v value, d *draft) error {
		text, err := v.text()
		if err == nil {
			d.spec.MinGap, err = limiter.ParsePer(text)
		}
		return err
	}},
	{"refill", func(v value, d *draft) (err error) {
		if d.spec.Refill, err = v.number(); err == nil && d.spec.Refill == 0 {
			err = errors.New("must be at least 1; leave it out to have the limit")
		}
		return err
	}},
	{"strict", func(v value, d *draft) (err error) { d.spec.Strict, err = v.flag(); return err }},
	{"drain", func(v value, d *draft) (err error) { d.spec.Drain, err = v.flag(); return err }},
	{"buckets", func(v value, d *draft) error {
		n, err := v.number()
		if err == nil && (n < 1 || n > limiter.MaxBuckets) {
			err = fmt.Errorf("is %d; 1 to %d are accepted", n, limiter.MaxBuckets)
		}
		d.spec.Buckets = int(n)
		return err
	}},
	{"lenient", func(v value, d *draft) (err error) { d.spec.Lenient, err = v.flag(); return err }},
	{"max_debt", func(v value, d *draft) (err error) {
		d.spec.MaxDebt, err = v.number()
		return err
	}},
	{"client_time", func(v value, d *draft) (err error) {
		d.spec.ClientTime, err = v.flag()
		return err
	}},
	{"sessions", func(v value, d *draft) (err error) {
		d.spec.Sessions, err = v.flag()
		return err
	}},
	{"on_error", func(v value, d *draft) (err error) {
		d.spec.OnError, err = v.onError()
		return err
	}},
	{"unsettled", func(v value, d *draft) (err error) {
		d.spec.Unsettled, err = word(v, []choice[limiter.Unsettled]{{
			"charge",
			limiter.UnsettledCharge,
		}, {"release", limiter.UnsettledRelease}})
		return err
	}},
	{"on_deny", func(v value, d *draft) (err error) {
		d.spec.OnDeny, err = word(v, []choice[limiter.OnDeny]{
			{"reject", limiter.DenyReject},
			{"shadow", limiter.DenyShadow},
			{"tag", limiter.DenyTag},
			{"deprioritize", limiter.DenyDeprioritize},
			{"delay", limiter.DenyDelay},
		})
		return err
	}},
	{"max_delay", func(v value, d *draft) error {
		text, err := v.text()
		if err == nil {
			d.spec.MaxDelay, err = limiter.ParseMaxDelay(text)
		}
		return err
	}},
	{"dry_run", func(v value, d *draft) (err error) { d.spec.DryRun, err = v.flag(); return err }},

	{"consistency", func(v value, d *draft) (err error) {
		d.spec.Consistency, err = word(v, []choice[limiter.Consistency]{
			{"exact", limiter.Exact},
			{"leased", limiter.Leased},
			{"replicated", limiter.Replicated},
		})
		return err
	}},
	{"replication", func(v value, d *draft) (err error) {
		d.spec.Sync, err = word(v, []choice[bool]{{"async", false}, {"sync", true}})
		return err
	}},
	{"on_partition", func(v value, d *draft) (err error) {
		d.spec.OnPartition, err = word(v, []choice[limiter.OnPartition]{
			{"proportional", limiter.PartitionProportional},
			{"deny", limiter.PartitionDeny},
			{"open", limiter.PartitionOpen},
		})
		return err
	}},
	{"spread", func(v value, d *draft) (err error) {
		d.spec.Answers.Spread, err = v.percent()
		return err
	}},
	{"status", func(v value, d *draft) (err error) {
		d.spec.Answers.Status, err = v.small(400, 599)
		return err
	}},
	{"body", func(v value, d *draft) (err error) {
		return v.filled(&d.spec.Answers.Body, "leave it out to have the door's")
	}},
	{"content_type", func(v value, d *draft) (err error) {
		return v.filled(&d.spec.Answers.ContentType, "leave it out for plain text")
	}},
	{"tag", func(v value, d *draft) (err error) {
		return v.filled(&d.spec.Answers.Tag, "leave it out for over-limit")
	}},
	{"tier", func(v value, d *draft) (err error) {
		d.spec.Answers.Tier, err = v.small(1, limiter.MaxTier)
		return err
	}},
	{"parent", readParent},
	{"overrides", nil}, // see page.overrides
	{"candidate", nil}, // see page.candidate
}

// overrideField is a field that an override may have.
type overrideField struct {
	name string
	read func(v value, o *limiter.Override) error
}

var overrideFields = []overrideField{
	{"key", func(v value, o *limiter.Override) (err error) { o.Key, err = v.text(); return err }},
	{"plan", func(v value, o *limiter.Override) error { return v.filled(&o.Plan, "name one") }},
	{"limit", func(v value, o *limiter.Override) (err error) {
		o.Limit, err = v.positive()
		return err
	}},
	{"burst", func(v value, o *limiter.Override) (err error) {
		o.Burst, err = v.positive()
		return err
	}},
	{"refill", func(v value, o *limiter.Override) (err error) {
		o.Refill, err = v.positive()
		return err
	}},
	{"unlimited", func(v value, o *limiter.Override) (err error) {
		if o.Unlimited, err = v.flag(); err == nil && !o.Unlimited {
			err = errors.New("is false; leave it out")
		}
		return err
	}},
}

func isCalendar(word string) bool {
	_, found := limiter.CalendarNamed(word)
	return found
}

func limitFieldNames() string {
	names := make([]string, len(limitFields))
	for i, f := range limitFields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// value is a node where one value is expected.
type value struct{ node ast.Node }

// text reads a string. What YAML takes for a number or a truth value has to be quoted to be one.
func (v value) text() (string, error) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return "", fmt.Errorf("must be a text, not %s; put it in quotes", describe(n))
	}
	return "", fmt.Errorf("must be a text, not %s", describe(v.node))
}

// number reads a whole number in decimal digits. 010 is none: it is 8 to some readers of YAML and
// 10 to others.
func (v value) number() (int64, error) {
	digits := v.node.GetToken().Value
	n, err := strconv.ParseInt(digits, 10, 64)
	switch _, whole := v.node.(*ast.IntegerNode); {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("is %s; 1 to %d are accepted", shorten(digits),
			int64(limiter.MaxLimit))
	case !whole:
		return 0, fmt.Errorf("must be a whole number, not %s", describe(v.node))
	case err != nil || strconv.FormatInt(n, 10) != digits:
		return 0, fmt.Errorf("must be a whole number in decimal digits, not %s", shorten(digits))
	}
	return n, nil
}

// positive is number where 0 would mean that the field is not there.
func (v value) positive() (int64, error) {
	n, err := v.number()
	if err == nil && n < 1 {
		err = fmt.Errorf("is %d; 1 to %d are accepted, or leave it out to have the limit's", n,
			int64(limiter.MaxLimit))
	}
	return n, err
}

// small is number where only those from least to most mean something.
func (v value) small(least, most int) (int, error) {
	n, err := v.number()
	if err == nil && (n < int64(least) || n > int64(most)) {
		err = fmt.Errorf("is %d; %d to %d are accepted", n, least, most)
	}
	return int(n), err
}

// filled reads a text that must not be empty; instead says what to do about one that is.
func (v value) filled(to *string, instead string) (err error) {
	if *to, err = v.text(); err == nil && *to == "" {
		err = errors.New("is empty; " + instead)
	}
	return err
}

// percent reads a share: "10%".
func (v value) percent() (int, error) {
	if _, bare := v.node.(*ast.IntegerNode); bare {
		return 0, errors.New("has no unit; " + limiter.SpreadForms)
	}
	text, err := v.text()
	if err != nil {
		return 0, err
	}
	return limiter.ParseSpread(text)
}

func (v value) flag() (bool, error) {
	if n, ok := v.node.(*ast.BoolNode); ok {
		return n.Value, nil
	}
	return false, fmt.Errorf("must be true or false, not %s", describe(v.node))
}

func (v value) onError() (limiter.OnError, error) {
	return word(v, []choice[limiter.OnError]{
		{"local", limiter.ErrorLocal}, {"allow", limiter.ErrorAllow}, {"deny", limiter.ErrorDeny},
	})
}

// choice is a word that a field accepts, and what it means.
type choice[T any] struct {
	name  string
	value T
}

// word reads one of several words.
func word[T any](v value, choices []choice[T]) (none T, err error) {
	text, err := v.text()
	if err != nil {
		return none, err
	}
	names := make([]string, len(choices))
	for i, c := range choices {
		if c.name == text {
			return c.value, nil
		}
		names[i] = c.name
	}
	return none, fmt.Errorf("%q is unknown; there is: %s", shorten(text), strings.Join(names, ", "))
}

// describe says what a node is.
func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode:
		return "a number"
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number with a fraction"
	case *ast.BoolNode:
		return "true or false"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias, which are not read here: write the value out"
	case *ast.TagNode:
		return "a tag, which is not read here: write the value alone"
	}
	return "this"
}

// shorten makes s fit into a line of an error.
func shorten(s string) string {
	const most = 40
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
