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
	spec limiter.Spec
	week bool // per is the word "week"
}

// check refuses what no single field shows.
func (d *draft) check() error {
	if d.week && d.spec.Algorithm == limiter.FixedWindow && d.spec.Anchor == limiter.Epoch {
		return errors.New("calendar weeks are not built yet: windows of seven days are, written 1w, which begin on Thursdays at 0:00 UTC")
	}
	return nil
}

// limitFields are the fields of a limit. Those that this release knows and cannot do say so.
var limitFields = map[string]func(v value, d *draft) error{
	"name": func(v value, d *draft) (err error) { d.spec.Name, err = v.text(); return err },
	"algorithm": func(v value, d *draft) (err error) {
		d.spec.Algorithm, err = word(v, []choice[limiter.Algorithm]{
			{"gcra", limiter.GCRA}, {"fixed_window", limiter.FixedWindow}, {"sliding_window", limiter.SlidingCounter},
		}, "token_bucket", "leaky_bucket", "sliding_log", "sliding_counter", "concurrency")
		return err
	},
	"limit": func(v value, d *draft) (err error) { d.spec.Limit, err = v.count(); return err },
	"per": func(v value, d *draft) error {
		text, err := v.text()
		if _, isNumber := v.node.(*ast.IntegerNode); isNumber {
			return fmt.Errorf("%s has no unit; %s", v.node.GetToken().Value, perAccepts)
		}
		if err == nil {
			d.spec.Per, err = parsePer(text)
			d.week = text == week
		}
		return err
	},
	"burst": func(v value, d *draft) (err error) { d.spec.Burst, err = v.count(); return err },
	"anchor": func(v value, d *draft) (err error) {
		d.spec.Anchor, err = word(v, []choice[limiter.Anchor]{{"epoch", limiter.Epoch}, {"first_hit", limiter.FirstHit}})
		return err
	},
	"count_rejected": func(v value, d *draft) (err error) { d.spec.CountRejected, err = v.flag(); return err },
	"on_error": func(v value, d *draft) (err error) {
		d.spec.OnError, err = word(v, []choice[limiter.OnError]{
			{"local", limiter.ErrorLocal}, {"allow", limiter.ErrorAllow}, {"deny", limiter.ErrorDeny},
		})
		return err
	},
	"on_deny": func(v value, d *draft) (err error) {
		d.spec.OnDeny, err = word(v, []choice[limiter.OnDeny]{
			{"reject", limiter.DenyReject}, {"shadow", limiter.DenyShadow},
		}, "delay", "deprioritize")
		return err
	},
	"dry_run": func(v value, d *draft) (err error) { d.spec.DryRun, err = v.flag(); return err },

	"consistency":  onlyDefault("exact", "leased", "replicated"),
	"replication":  onlyDefault("async", "sync"),
	"on_partition": onlyDefault("proportional", "deny", "open"),
	"overrides":    func(v value, _ *draft) error { return emptyList(v.node, "overrides for some keys") },
	"min_gap":      notBuilt("a least gap between two requests"),
	"time_zone":    notBuilt("calendar windows in a time zone"),
}

// limitFieldNames lists the fields that can be used.
func limitFieldNames() string {
	return "name, algorithm, limit, per, burst, anchor, count_rejected, on_error, on_deny, dry_run"
}

// onlyDefault reads a field of which only the default is built.
func onlyDefault(builtin string, later ...string) func(value, *draft) error {
	return func(v value, _ *draft) error {
		_, err := word(v, []choice[struct{}]{{name: builtin}}, later...)
		return err
	}
}

func notBuilt(what string) func(value, *draft) error {
	return func(value, *draft) error { return fmt.Errorf("is not built yet: %s; leave it out", what) }
}

// emptyList accepts an empty list of what is not built yet.
func emptyList(n ast.Node, what string) error {
	if list, ok := n.(*ast.SequenceNode); ok && len(list.Values) == 0 {
		return nil
	}
	return fmt.Errorf("is not built yet: %s; leave it out, or write []", what)
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
		return "", fmt.Errorf("is %s; write it in quotes to have a text", describe(n))
	}
	return "", fmt.Errorf("is %s; a text is accepted", describe(v.node))
}

// count reads a whole number of at least 1, in decimal digits.
func (v value) count() (int64, error) {
	token := v.node.GetToken().Value
	_, isNumber := v.node.(*ast.IntegerNode)
	n, err := strconv.ParseInt(token, 10, 64)
	if !isNumber || err != nil || n < 1 || token[0] == '0' {
		return 0, fmt.Errorf("is %s; a whole number from 1 to %d is accepted, in digits without quotes", describe(v.node), int64(limiter.MaxLimit))
	}
	return n, nil
}

func (v value) flag() (bool, error) {
	if n, ok := v.node.(*ast.BoolNode); ok {
		return n.Value, nil
	}
	return false, fmt.Errorf("is %s; true or false is accepted", describe(v.node))
}

// choice is a word that a field accepts, and what it means.
type choice[T any] struct {
	name  string
	value T
}

// word reads one of several words; later are those that will be accepted one day.
func word[T any](v value, choices []choice[T], later ...string) (none T, err error) {
	names := make([]string, len(choices))
	for i, c := range choices {
		names[i] = c.name
	}
	text, err := v.text()
	if err != nil {
		return none, fmt.Errorf("is %s; %s", describe(v.node), accepted(names))
	}
	for _, c := range choices {
		if c.name == text {
			return c.value, nil
		}
	}
	for _, name := range later {
		if name == text {
			return none, fmt.Errorf("%q is not built yet; %s", text, accepted(names))
		}
	}
	return none, fmt.Errorf("%q is unknown; %s", text, accepted(names))
}

// accepted says that a, b and c are accepted.
func accepted(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0] + " is accepted"
	}
	return strings.Join(names[:last], ", ") + " and " + names[last] + " are accepted"
}

// describe says what a node is.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.NullNode:
		return "empty"
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return strconv.Quote(shorten(n.Value))
	case *ast.LiteralNode:
		return strconv.Quote(shorten(n.Value.Value))
	case *ast.AnchorNode:
		return "an anchor (&), which is not read here: write the value alone"
	case *ast.AliasNode:
		return "an alias (*), which is not read here: write the value out"
	case *ast.MergeKeyNode:
		return "a merge key (<<), which is not read here: write the fields out"
	case *ast.TagNode:
		return "a tag (!), which is not read here: write the value alone"
	}
	return "the number or word " + strconv.Quote(shorten(n.GetToken().Value))
}

func shorten(s string) string {
	const most = 40
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
