package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"penstock/limiter"
)

// gubernatorRequest is one of Gubernator's requests, which bring their limits along. Its JSON has
// numbers also as texts, and names in two spellings.
type gubernatorRequest struct {
	Name      string
	Limit     json.Number
	Duration  json.Number
	Algorithm any
	Behavior  any
	Burst     json.Number
}

// importGubernator makes a limit of each name in a file of requests: bodies of GetRateLimits, or
// single requests, one after another.
func importGubernator(d *draft, data []byte) error {
	in := json.NewDecoder(bytes.NewReader(data))
	seen := map[string]string{}
	for {
		var body struct {
			Requests []gubernatorRequest
			gubernatorRequest
		}
		err := in.Decode(&body)
		line := 1 + bytes.Count(data[:min(int(in.InputOffset()), len(data))], []byte("\n"))
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line = 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", d.file, line, err)
		}
		if body.Name != "" {
			body.Requests = append(body.Requests, body.gubernatorRequest)
		}
		for _, r := range body.Requests {
			l, err := d.gubernatorLimit(line, r)
			if err != nil {
				return fmt.Errorf("%s:%d: request %q: %w", d.file, line, r.Name, err)
			}
			fields := flow(l.fields)
			if was := seen[r.Name]; was != "" && was != fields {
				d.note(line, "%s: has another limit here, %s; the first stands", r.Name, fields)
				continue
			}
			seen[r.Name] = fields
			d.limit(l)
		}
	}
}

func (d *draft) gubernatorLimit(line int, r gubernatorRequest) (l draftLimit, err error) {
	l.name = r.Name
	limit, err := r.Limit.Int64()
	if r.Name == "" || err != nil || limit <= 0 {
		return l, errors.New("needs a name, and a limit from 1")
	}
	behavior, err := behaviorOf(r.Behavior)
	if err != nil {
		return l, err
	}
	per, err := gubernatorPer(r.Duration, behavior["DURATION_IS_GREGORIAN"])
	if err != nil {
		return l, err
	}
	l.fields = []field{{"algorithm", "fixed_window"}, {"limit", fmt.Sprint(limit)}, {"per", per}}
	leaky := fmt.Sprint(r.Algorithm) == "1" || fmt.Sprint(r.Algorithm) == "LEAKY_BUCKET"
	switch {
	case leaky && behavior["DURATION_IS_GREGORIAN"]:
		return l, errors.New("LEAKY_BUCKET with a period of the calendar has no counterpart")
	case leaky:
		l.fields[0].value = "gcra"
		if burst, _ := r.Burst.Int64(); burst > 0 {
			l.fields = append(l.fields, field{"burst", fmt.Sprint(burst)})
		}
	case !behavior["DURATION_IS_GREGORIAN"]:
		l.fields = append(l.fields, field{"anchor", "first_hit"})
	}
	l.fields = append(l.fields, d.gubernatorBehavior(line, r.Name, behavior, leaky)...)
	return l, nil
}

// gubernatorBehavior are the fields of a limit that flags mean.
func (d *draft) gubernatorBehavior(
	line int, name string, flags map[string]bool, leaky bool,
) (fields []field) {
	if flags["DRAIN_OVER_LIMIT"] && !leaky {
		fields = append(fields, field{"drain", "true"})
	}
	if flags["GLOBAL"] {
		fields = append(fields, field{"consistency", "leased"})
	}
	if flags["MULTI_REGION"] {
		d.note(line, "%s: MULTI_REGION: does nothing here, as there", name)
	}
	if flags["RESET_REMAINING"] {
		d.note(line, "%s: RESET_REMAINING: belongs to a request: penstock reset LIMIT KEY", name)
	}
	return fields
}

// behaviorOf reads flags as a number, a name, or names with | between.
func behaviorOf(v any) (map[string]bool, error) {
	flags := map[string]bool{}
	for i, name := range []string{
		"NO_BATCHING", "GLOBAL", "DURATION_IS_GREGORIAN", "RESET_REMAINING", "MULTI_REGION",
		"DRAIN_OVER_LIMIT",
	} {
		switch v := v.(type) {
		case nil:
		case float64:
			flags[name] = int64(v)>>i&1 == 1
		case string:
			flags[name] = slices.Contains(strings.Split(v, "|"), name)
		default:
			return nil, fmt.Errorf("its behavior %v is neither a number nor names", v)
		}
	}
	return flags, nil
}

func gubernatorPer(duration json.Number, gregorian bool) (string, error) {
	n, err := duration.Int64()
	words := []string{"minute", "hour", "day", "week", "month", "year"}
	switch {
	case err != nil || n < 0 || !gregorian && (n == 0 || n > limiter.MaxPer.Milliseconds()):
		return "", fmt.Errorf("its duration %q is not a number of milliseconds from 1 to %d",
			duration, limiter.MaxPer.Milliseconds())
	case !gregorian && n%1000 != 0: // files have no fractions
		return fmt.Sprintf("%dms", n), nil
	case !gregorian:
		return (time.Duration(n) * time.Millisecond).String(), nil
	case n >= int64(len(words)):
		return "", fmt.Errorf("its duration %d is not a period of the calendar, 0 to 5", n)
	case n < 3: // without a time zone these are periods of the clock
		return []string{"1m", "1h", "24h"}[n], nil
	}
	return words[n], nil
}
