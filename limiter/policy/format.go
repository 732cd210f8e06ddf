package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"penstock/limiter"
)

// Format writes a limit with its overrides and its candidate as JSON, in the words of the files:
// what Define reads is the same limit. Fields that a file may leave out are left out.
func Format(l *limiter.Limit) []byte {
	fields := formatted(l)
	if c := l.Candidate(); c != nil {
		own := formatted(c)
		own = slices.DeleteFunc(own, func(f written) bool {
			return !slices.Contains(candidateFields, f.name)
		})
		fields = append(fields, written{"candidate", whole(l, c, own)})
	}
	text, _ := object(fields).MarshalJSON() // texts and numbers: nothing can fail
	return text
}

// whole says in a candidate also what is zero there and not so in its limit, which it would have
// from that.
func whole(l, c *limiter.Limit, own []written) object {
	if c.Algorithm != l.Algorithm {
		if len(l.Overrides()) > 0 && len(c.Overrides()) == 0 {
			own = append(own, written{"overrides", []object{}})
		}
		return own
	}
	for _, f := range formatted(l) {
		if !slices.Contains(candidateFields, f.name) ||
			slices.ContainsFunc(own, func(o written) bool { return o.name == f.name }) {
			continue
		}
		switch f.value.(type) {
		case string:
			if f.name == "anchor" {
				own = append(own, written{f.name, anchors[c.Anchor]})
			}
		case bool:
			own = append(own, written{f.name, false})
		case int64:
			own = append(own, written{f.name, 0})
		case []object:
			own = append(own, written{f.name, []object{}})
		}
	}
	return own
}

// written is a field and its value.
type written struct {
	name  string
	value any
}

// object keeps the order of its fields, and leaves out those that are zero.
type object []written

// MarshalJSON writes the fields in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", f.name)
		out := json.NewEncoder(&b)
		out.SetEscapeHTML(false)
		if err := out.Encode(f.value); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1) // the newline
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// onDenyWords are in the order of limiter.OnDeny.
var onDenyWords = []string{"reject", "shadow", "tag", "deprioritize", "delay"}

var anchors = map[limiter.Anchor]string{limiter.Epoch: "epoch", limiter.FirstHit: "first_hit"}

// formatted are the fields of a limit that were given, and are not their default.
func formatted(l *limiter.Limit) (fields []written) {
	given := limiter.Given(l)
	s := &given
	add := func(name string, value any, given bool) {
		if given {
			fields = append(fields, written{name, value})
		}
	}
	add("name", l.Name, true)
	add("algorithm", s.Algorithm.String(), true)
	add("limit", s.Limit, true)
	if s.Calendar != 0 {
		add("per", s.Calendar.String(), true)
	} else {
		add("per", perText(s.Per), true)
	}
	add("time_zone", s.TimeZone, s.TimeZone != "")
	add("burst", s.Burst, s.Burst != 0 || s.Algorithm == limiter.LeakyBucket)
	add("anchor", anchors[s.Anchor], s.Anchor != limiter.DefaultAnchor(s.Algorithm))
	add("count_rejected", true, s.CountRejected)
	add("min_gap", perText(s.MinGap), s.MinGap != 0)
	add("refill", s.Refill, s.Refill != 0)
	add("strict", true, s.Strict)
	add("drain", true, s.Drain)
	add("buckets", int64(s.Buckets), s.Buckets != 0)
	add("lenient", true, s.Lenient)
	add("max_debt", s.MaxDebt, s.MaxDebt != 0)
	add("client_time", true, s.ClientTime)
	add("sessions", true, s.Sessions)
	for _, w := range []struct {
		name  string
		value int
		words []string
	}{
		{"on_error", int(s.OnError), []string{"local", "allow", "deny"}},
		{"unsettled", int(s.Unsettled), []string{"charge", "release"}},
		{"on_deny", int(s.OnDeny), onDenyWords},
		{"consistency", int(s.Consistency), []string{"exact", "replicated", "leased"}},
		{"on_partition", int(s.OnPartition), []string{"proportional", "deny", "open"}},
	} {
		add(w.name, w.words[w.value], w.value != 0)
	}
	add("max_delay", perText(s.MaxDelay), s.MaxDelay != 0)
	add("dry_run", true, s.DryRun)
	add("replication", "sync", s.Sync)
	a := &s.Answers
	add("spread", fmt.Sprintf("%d%%", a.Spread), a.Spread != 0)
	add("status", int64(a.Status), a.Status != 0)
	add("body", a.Body, a.Body != "")
	add("content_type", a.ContentType, a.ContentType != "")
	add("tag", a.Tag, a.Tag != "")
	add("tier", int64(a.Tier), a.Tier != 0)
	add("parent", s.Parent, s.Parent != "")
	var list []object
	for _, o := range l.Overrides() {
		list = append(list, object(formattedOverride(&o)))
	}
	add("overrides", list, len(list) > 0)
	return fields
}

func formattedOverride(o *limiter.Override) (fields []written) {
	if o.Plan != "" {
		fields = append(fields, written{"plan", o.Plan})
	} else {
		fields = append(fields, written{"key", o.Key})
	}
	for _, n := range []written{{"limit", o.Limit}, {"burst", o.Burst}, {"refill", o.Refill}} {
		if n.value.(int64) != 0 {
			fields = append(fields, n)
		}
	}
	if o.Unlimited {
		fields = append(fields, written{"unlimited", true})
	}
	return fields
}

// perText is d as limiter.ParsePer reads it.
func perText(d time.Duration) string {
	if d%time.Second != 0 {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return fmt.Sprintf("%ds", int64(d/time.Second))
}

// Define reads one limit that is written as in a file, or as JSON. It does not ask for the limit's
// parent, which is another one. The error is Faults.
func Define(text []byte) (*limiter.Limit, error) {
	if json.Valid(text) { // with short lines, as the parser wants them
		var lines bytes.Buffer
		_ = json.Indent(&lines, text, "", "  ")
		text = lines.Bytes()
	}
	b := newBook()
	b.parse("limit", text, (*page).limitAlone)
	if err := b.fault(); err != nil {
		return nil, err
	}
	for _, l := range b.limits {
		return l, nil
	}
	return nil, fmt.Errorf("the definition of a limit is empty")
}
