package cluster

import (
	"testing"

	"penstock/limiter"
)

// Promise: request ids are remembered for 2 s, in bounded memory.
func TestRecentForgetsAfterItsWindow(t *testing.T) {
	var r recent
	taken := 0
	once := func(now limiter.Instant, seq uint64) limiter.Decision {
		var out [1]limiter.Decision
		r.once(now, ID{Origin: 1, Sequence: seq}, 0, out[:], func() bool { taken++; out[0].Remaining = int64(taken); return true })
		return out[0]
	}
	const many = 5000
	start := limiter.Instant(0)
	for seq := range uint64(many) {
		once(start.Add(0), seq)
	}
	for seq := range uint64(many) {
		if d := once(start.Add(recentWindow-1), seq); d.Remaining != int64(seq)+1 {
			t.Fatalf("take %d is answered with %d, the answer of another", seq, d.Remaining)
		}
	}
	if taken != many {
		t.Fatalf("%d takes for %d ids delivered twice", taken, many)
	}
	once(start.Add(recentWindow), 0)
	if taken != many+1 {
		t.Errorf("an id is still known after its window")
	}
}

func TestRecentIsBounded(t *testing.T) {
	var r recent
	nothing := func() bool { return true }
	out := make([]limiter.Decision, 1)
	for seq := range uint64(recentShards*recentMax + 100_000) {
		r.once(0, ID{Origin: 1, Sequence: seq}, 0, out, nothing)
	}
	for i := range r.shards {
		if s := &r.shards[i]; len(s.queue) > recentMax || len(s.index) > recentMax {
			t.Errorf("shard %d holds %d records, %d ids; bound is %d", i, len(s.queue), len(s.index), recentMax)
		}
	}
}
