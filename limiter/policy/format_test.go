package policy

import (
	"strings"
	"testing"
)

// Promise: what Format writes of a limit, Define reads as the same one, with overrides and candidate.
func TestFormatThereAndBack(t *testing.T) {
	set, err := Parse("limits.yaml", []byte(`
limits:
  - {name: plain, algorithm: gcra, limit: 10, per: 1m}
  - {name: all, algorithm: gcra, limit: 10, per: 1500ms, burst: 20, on_error: deny, on_deny: shadow, dry_run: true, consistency: leased, replication: async, on_partition: open, max_debt: 3}
  - {name: released, algorithm: gcra, limit: 10, per: 1m, unsettled: release}
  - {name: "a/b: <\"'&> {günther} 🙂", algorithm: fixed_window, limit: 5, per: 1d, anchor: first_hit, count_rejected: true, on_error: allow, replication: sync}
  - {name: log, algorithm: sliding_log, limit: 10, per: 1m, min_gap: 2s, count_rejected: true}
  - {name: smyte, algorithm: token_bucket, limit: 10, per: 1h, refill: 1, strict: true, drain: true}
  - {name: aligned, algorithm: token_bucket, limit: 3, per: 1m, anchor: epoch}
  - {name: queue, algorithm: leaky_bucket, limit: 10, per: 1s, burst: 0}
  - {name: queue5, algorithm: leaky_bucket, limit: 10, per: 1s, burst: 5}
  - {name: visit, algorithm: token_bucket, limit: 1, per: 30m, client_time: true, sessions: true, max_debt: 3}
  - {name: month, algorithm: fixed_window, limit: 10, per: month, time_zone: Europe/Berlin}
  - {name: week, algorithm: fixed_window, limit: 10, per: week}
  - {name: plain day, algorithm: fixed_window, limit: 10, per: day}
  - {name: jobs, algorithm: concurrency, limit: 10, per: 30s}
  - {name: figma, algorithm: sliding_counter, limit: 500, per: 1h, buckets: 30, lenient: true}
  - {name: replicated, algorithm: gcra, limit: 10, per: 1m, consistency: replicated}
  - name: overridden
    algorithm: gcra
    limit: 10
    per: 1m
    overrides:
      - {key: "plan:pro/*", limit: 1000}
      - {key: 10.0.0.0/8, unlimited: true}
      - {key: '\*', limit: 7, burst: 9}
    candidate: {limit: 3, overrides: []}
  - {name: burst given, algorithm: gcra, limit: 10, per: 1m, burst: 10, overrides: [{key: a, limit: 500}]}
  - {name: other algorithm, algorithm: gcra, limit: 10, per: 1m, burst: 20, overrides: [{key: a, limit: 500}], candidate: {algorithm: sliding_log, per: 2m, min_gap: 1s}}
  - {name: fewer fields, algorithm: token_bucket, limit: 10, per: 1m, refill: 2, strict: true, candidate: {strict: false, refill: 3, anchor: epoch}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range set.Limits {
		text := Format(l)
		again, err := Define(text)
		if err != nil || !l.SameAs(again) {
			t.Errorf("%s was written as %s, and read as %+v, %v", name, text, again, err)
			continue
		}
		for _, key := range []string{"a", "*", "plan:pro/x", "10.1.2.3"} {
			if a, b := l.For(key).Spec, again.For(key).Spec; a != b {
				t.Errorf("%s: the key %s had %+v and has %+v", name, key, a, b)
			}
		}
	}
}

func TestDefineRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``: "limit:1:1: the definition of the limit is empty", `[]`: "a limit must be a mapping of fields",
		`{"name":"x","algorithm":"gcra","limit":1}`: "per", `{"nam":"x"}`: "nam: is unknown",
	} {
		if l, err := Define([]byte(text)); l != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", text, l, err)
		}
	}
}
