package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: a candidate has what it says, and else what its limit says; where it has another
// algorithm, it has limit, per and overrides of the limit.
func TestCandidateArrives(t *testing.T) {
	set, err := Parse("limits.yaml", []byte(`
limits:
  - name: login
    candidate: {limit: 5}
    algorithm: fixed_window
    limit: 10
    per: 1m
    anchor: first_hit
    on_error: deny
    dry_run: true
    overrides: [{key: "pro/*", limit: 100}]
  - name: api
    algorithm: fixed_window
    limit: 10
    per: minute
    anchor: epoch
    candidate:
      algorithm: gcra
      per: 1s
      burst: 3
      overrides: [{key: "*", unlimited: true}]
  - {name: plain, algorithm: gcra, limit: 10, per: 1m}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]limiter.Spec{
		"login": {
			Name: "login (candidate)", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
			Limit: 5, Per: time.Minute, OnError: limiter.ErrorDeny,
		},
		"api": {
			Name: "api (candidate)", Algorithm: limiter.GCRA, Limit: 10, Per: time.Second,
			Burst: 3,
		},
	} {
		if got := set.Limits[name].Candidate().Spec; got != want {
			t.Errorf("%s: %+v; want %+v", name, got, want)
		}
	}
	if got := set.Limits["login"].Candidate().For("pro/x").Limit; got != 100 {
		t.Errorf("the candidate has %d for a key with an override of the limit; want 100", got)
	}
	if !set.Limits["api"].Candidate().For("k").Unlimited {
		t.Error("the candidate's own override is not there")
	}
	if set.Limits["plain"].Candidate() != nil {
		t.Error("a limit without a candidate has one")
	}
	promoted, err := set.Limits["login"].Promoted()
	if err != nil || promoted.Name != "login" || promoted.Limit != 5 || !promoted.DryRun ||
		promoted.Candidate() != nil {
		t.Errorf("promoted: %+v, %v", promoted, err)
	}
}

// Promise: a change of the candidate alone is a change of the file.
func TestCandidateIsAChange(t *testing.T) {
	parse := func(candidate string) *Set {
		t.Helper()
		set, err := Parse(
			"f",
			[]byte("limits:\n  - {name: a, algorithm: gcra, limit: 9, per: 1m"+candidate+"}\n"),
		)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	plain, five, again := parse(
		"",
	), parse(
		", candidate: {limit: 5}",
	), parse(
		", candidate: {limit: 5}",
	)
	if plain.equal(five) || five.equal(parse(", candidate: {limit: 6}")) || !five.equal(again) {
		t.Error("candidates are not compared")
	}
}

// Promise: a candidate that cannot be is a fault with its place and what to do.
func TestCandidateFaults(t *testing.T) {
	for _, row := range []struct{ fields, want string }{
		{
			"algorithm: gcra, limit: 9, per: 1m, candidate: 5",
			"f:2:62: candidate: must be a mapping of fields, not a number",
		},
		{"algorithm: gcra, limit: 9, per: 1m, candidate: {limit: 0}", "candidate.limit: "},
		{
			"algorithm: gcra, limit: 9, per: 1m, candidate: {limit: many}",
			"candidate.limit: must be a whole number, not a text",
		},
		{
			"algorithm: gcra, limit: 9, per: 1m, candidate: {on_error: deny}",
			"candidate.on_error: is not a candidate's; it has, and all else is the limit's: " +
				"algorithm, limit",
		},
		{
			"algorithm: gcra, limit: 9, per: 1m, candidate: {name: b}",
			"candidate.name: is not a candidate's",
		},
		{
			"algorithm: gcra, limit: 9, per: 1m, candidate: {candidate: {limit: 1}}",
			"candidate.candidate: is not a candidate's",
		},
		{
			"algorithm: gcra, limit: 9, per: 1m, candidate: {algorithm: concurrency}",
			"candidate.algorithm: concurrency counts permits",
		},
		{
			"algorithm: concurrency, limit: 9, per: 1m, candidate: {limit: 3}",
			"candidate.algorithm: concurrency counts permits",
		},
		{"algorithm: gcra, limit: 9, per: 1m, candidate: {buckets: 3}", "candidate.buckets: "},
		{
			"algorithm: gcra, limit: 9, per: 1m, candidate: {overrides: [{key: a}]}",
			"candidate.overrides[0]",
		},
		{
			"algorithm: gcra, limit: 9, per: 1m, candidate: {overrides: [{kye: a}]}",
			"candidate.overrides[0].kye: is unknown",
		},
	} {
		_, err := Parse("f", []byte("limits:\n  - {name: a, "+row.fields+"}\n"))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v; want %q", row.fields, err, row.want)
		}
	}
}

// Promise: a limit of a file cannot have a name under which a door or a candidate counts, and the
// fault has its place.
func TestTakenNames(t *testing.T) {
	for name, want := range map[string]string{
		"a (candidate)":       "a candidate's counters",
		"inline":              "limits that requests bring along without a name",
		"cl.throttle":         "limits of CL.THROTTLE at the Redis door",
		"envoy/shop":          "limits of Envoy's domains",
		"envoy/a (candidate)": "limits of Envoy's domains",
	} {
		_, err := Parse("f", fmt.Appendf(nil,
			"limits:\n  - {name: %s, algorithm: gcra, limit: 9, per: 1m}\n", name))
		want = fmt.Sprintf("f:2:12: name: %q is the name of %s; choose another one", name, want)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", name, err, want)
		}
	}
	for _, name := range []string{"inline2", "cl.throttle:other", "envoy", "candidate"} {
		_, err := Parse("f", fmt.Appendf(nil,
			"limits:\n  - {name: '%s', algorithm: gcra, limit: 9, per: 1m}\n", name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
