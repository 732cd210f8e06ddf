package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/door"
)

// headerForms are the ways to write what remains of a limit, as bits.
type headerForms uint8

const (
	// RateLimit and RateLimit-Policy, draft-ietf-httpapi-ratelimit-headers-10
	formIETF headerForms = 1 << iota
	// RateLimit-Limit, -Remaining, -Reset: the same draft up to its number 06
	formTriple
	formX // X-RateLimit-Limit, -Remaining, -Reset
)

// formNames are the forms as the parameter headers calls them.
var formNames = []struct {
	name string
	form headerForms
}{{"ietf", formIETF}, {"triple", formTriple}, {"x", formX}, {"none", 0}}

// readForms reads the parameter headers: names with commas between. The default is ietf.
func readForms(text string) (forms headerForms, _ error) {
	if text == "" {
		return formIETF, nil
	}
next:
	for name := range strings.SplitSeq(text, ",") {
		for _, f := range formNames {
			if f.name == name {
				forms |= f.form
				continue next
			}
		}
		return 0, queryFault("headers", "%.40q is unknown; there is: ietf, triple, x, none, with "+
			"commas between", name)
	}
	return forms, nil
}

// setRateLimit writes what remains in the forms that are asked for, and whatever form, Retry-After
// (RFC 9110, 10.2.3) on a denial that waiting ends, and what only this limiter has to say. The
// older forms have whole numbers: the limit, what remains of it, and the seconds until all of it is
// there again.
func setRateLimit(h http.Header, d *cluster.Decision, forms headerForms) {
	setRateLimits(h, []cluster.Decision{*d}, forms)
}

// setRateLimits is setRateLimit for several limits at once: the draft lists them all, with commas
// between. The older forms are of the one that leaves least; Retry-After, the delay and the
// bound of what is degraded are the largest.
func setRateLimits(h http.Header, out []cluster.Decision, forms headerForms) {
	if len(out) == 0 {
		return
	}
	least := slices.MinFunc(out,
		func(a, b cluster.Decision) int { return cmp.Compare(a.Remaining, b.Remaining) })
	var delay time.Duration
	tier := 0
	policies, states := make([]string, len(out)), make([]string, len(out))
	for i := range out {
		d := &out[i]
		name := structuredString(d.Rule.Name)
		policies[i] = policyOf(name, d.Rule)
		states[i] = fmt.Sprintf("%s;r=%d;t=%d", name, d.Remaining, seconds(door.UntilMore(d)))
		if d.Allowed {
			delay = max(delay, d.Delay)
		}
		if d.Shadow {
			h.Set("Penstock-Shadow", "1")
		}
		if tag := d.Tag(); tag != "" {
			h.Add("Penstock-Tag", tag)
		}
		if tier = max(tier, d.Tier()); tier > 0 {
			h.Set("Penstock-Tier", strconv.Itoa(tier))
		}
	}
	if bound, degraded := largestBound(out); degraded {
		h.Set("Penstock-Degraded", strconv.FormatInt(bound, 10))
	}
	// Not by Set, which would write them as Ratelimit: case has no meaning, but people look for
	// what the drafts write.
	if forms&formIETF != 0 {
		h["RateLimit-Policy"] = []string{strings.Join(policies, ", ")}
		h["RateLimit"] = []string{strings.Join(states, ", ")}
	}
	for _, older := range []struct {
		form   headerForms
		prefix string
	}{{formTriple, "RateLimit-"}, {formX, "X-RateLimit-"}} {
		if forms&older.form != 0 {
			h[older.prefix+"Limit"] = []string{strconv.FormatInt(least.Limit, 10)}
			h[older.prefix+"Remaining"] = []string{strconv.FormatInt(least.Remaining, 10)}
			h[older.prefix+"Reset"] = []string{strconv.FormatInt(seconds(least.ResetAfter), 10)}
		}
	}
	if v := cluster.VerdictOf(out); !v.Allowed && v.RetryAfter >= 0 {
		h.Set("Retry-After", strconv.FormatInt(max(1, seconds(v.RetryAfter)), 10))
	}
	if delay > 0 {
		h.Set("Penstock-Delay-Ms", strconv.FormatInt(door.Millis(delay), 10))
	}
}

// largestBound is the largest bound of the decisions that are degraded, if there are any. One below
// 0 is none, and larger than all.
func largestBound(out []cluster.Decision) (bound int64, degraded bool) {
	for i := range out {
		switch d := &out[i]; {
		case !d.Degraded:
		case !degraded, d.Bound < 0:
			bound, degraded = d.Bound, true
		case bound >= 0:
			bound = max(bound, d.Bound)
		}
	}
	return bound, degraded
}

// policyOf is a limit in RateLimit-Policy: the units that it grants, and the time in which it does.
// A bucket grants what it holds, in the time that it takes to fill. A limit of concurrency grants
// units at once, in no time.
func policyOf(name string, l *limiter.Limit) string {
	quota := l.Capacity()
	if l.Algorithm == limiter.Concurrency {
		return fmt.Sprintf(`%s;q=%d;qu="concurrent-requests"`, name, quota)
	}
	refill := l.Limit // units that come in Per
	if l.Algorithm == limiter.TokenBucket {
		refill = l.Refill
	}
	window := max(1, seconds(time.Duration(float64(l.Per)*float64(quota)/float64(refill))))
	return fmt.Sprintf("%s;q=%d;w=%d", name, quota, window)
}

// seconds is d in seconds, rounded up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// structuredString writes s as a String of RFC 9651, which has only printable ASCII. What is not is
// written as %XX.
func structuredString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c > 0x7e:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
