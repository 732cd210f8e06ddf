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
				own = append(own, written{f.name, limiter.Words["anchor"][c.Anchor]})
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

// formatted are the fields of a limit that were given, and are not their default.
func formatted(l *limiter.Limit) (fields []written) {
	given := limiter.Given(l)
	for _, f := range limitFields {
		if f.write == nil {
			continue
		}
		if value := f.write(&given); value != nil {
			fields = append(fields, written{f.name, value})
		}
	}
	var list []object
	for _, o := range l.Overrides() {
		list = append(list, object(formattedOverride(&o)))
	}
	if len(list) > 0 {
		fields = append(fields, written{"overrides", list})
	}
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
