package main

import (
	"fmt"

	"penstock/bench/history/judge"
	penstockv1 "penstock/proto/penstock/v1"
)

// The windows are longer than any run, so a key has one counter from its first request on.
const window = 240 * 60 * 60 // seconds

// limitsFile is what the nodes read. The n-th version has further limits that nobody asks for.
func limitsFile(n int) string {
	text := fmt.Sprintf(`limits:
  - {name: few, algorithm: fixed_window, anchor: first_hit, limit: 40, per: %[1]ds}
  - {name: many, algorithm: fixed_window, anchor: first_hit, limit: 100000, per: %[1]ds}
  - {name: kept, algorithm: fixed_window, anchor: first_hit, limit: 1000, per: %[1]ds}
  - {name: sync, algorithm: fixed_window, anchor: first_hit, limit: 100000, per: %[1]ds,
     replication: sync}
  - {name: deny, algorithm: fixed_window, anchor: first_hit, limit: 40, per: %[1]ds,
     on_partition: deny}
  - {name: held, algorithm: fixed_window, anchor: first_hit, limit: 60, per: %[1]ds}
  - {name: leased, algorithm: fixed_window, anchor: first_hit, limit: 200, per: %[1]ds,
     consistency: leased}
  - {name: rate, algorithm: gcra, limit: 20, per: 1s, burst: 20}
  - {name: permits, algorithm: concurrency, limit: 4, per: 1m}
`, window)
	for i := range n {
		text += fmt.Sprintf("  - {name: spare-%d, algorithm: gcra, limit: %d, per: 1s}\n", i, i+1)
	}
	return text
}

// limits are the same for the judge.
var limits = []judge.Limit{
	{Name: "few", Capacity: 40, Exact: true},
	{Name: "many", Capacity: 100_000, Exact: true},
	{Name: "kept", Capacity: 1000, Exact: true},
	{Name: "sync", Capacity: 100_000, Exact: true, Sync: true},
	{Name: "deny", Capacity: 40, Exact: true},
	{Name: "held", Capacity: 60, Exact: true},
	{Name: "leased", Capacity: 200},
	{Name: "rate", Capacity: 20, PerSecond: 20},
	{Name: "permits", Capacity: 4, Permits: true},
	{Name: "cell", Capacity: 50, Exact: true},
	{Name: "bucket", Capacity: 50, Exact: true},
}

// inline is a limit that each request brings along, as those of the Redis protocol do.
type inline struct {
	bucket            bool // of RL.REDUCE, else of CL.THROTTLE
	capacity, seconds int64
}

// Neither refills within a run: a bucket does so once a window, the other one a unit a window.
var inlines = map[string]*inline{
	"cell":   {capacity: 50, seconds: window},
	"bucket": {bucket: true, capacity: 50, seconds: window},
}

func (l *inline) json() map[string]any {
	per := fmt.Sprintf("%ds", l.seconds)
	if l.bucket {
		return map[string]any{
			"algorithm": "token_bucket", "client_time": true, "limit": l.capacity,
			"refill": l.capacity, "per": per,
		}
	}
	return map[string]any{
		"name":      "cl.throttle",
		"algorithm": "gcra",
		"limit":     1,
		"per":       per,
		"burst":     l.capacity,
	}
}

func (l *inline) proto() *penstockv1.InlineLimit {
	per := l.seconds * 1000
	if l.bucket {
		return &penstockv1.InlineLimit{
			Algorithm: penstockv1.Algorithm_ALGORITHM_TOKEN_BUCKET, ClientTime: true,
			Limit: l.capacity, Refill: l.capacity, PerMs: per,
		}
	}
	return &penstockv1.InlineLimit{
		Name: "cl.throttle", Algorithm: penstockv1.Algorithm_ALGORITHM_GCRA, Limit: 1, PerMs: per,
		Burst: l.capacity,
	}
}
