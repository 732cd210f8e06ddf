package cluster

import (
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Promise: of two members that do not reach each other one steps down when a claim waits for the
// other, after a member was lost and not otherwise, and once for each that was lost.
func TestImpasse(t *testing.T) {
	members := func(n uint64, boots ...ownership.Boot) *ownership.Configuration {
		c := &ownership.Configuration{Epoch: ownership.Epoch{Number: n}}
		for _, b := range boots {
			c.Members = append(c.Members, ownership.Member{ID: string(rune('a' + b)), Boot: b})
		}
		return c
	}
	all, fewer, fewest := members(1, 1, 2, 3, 4), members(2, 2, 3, 4), members(3, 2, 3)
	again := members(4, 3, 4, 5)
	type step struct {
		config *ownership.Configuration // installed before
		boot   ownership.Boot
		at     time.Duration  // of a claim that was not answered
		silent ownership.Boot // by this member
		want   bool
	}
	for _, row := range []struct {
		name  string
		steps []step
	}{
		{"nobody was lost", []step{{all, 3, 0, 2, false}, {all, 3, time.Hour, 2, false}}},
		{"one was lost", []step{
			{all, 3, 0, 0, false},
			{fewer, 3, time.Second, 2, false},
			{fewer, 3, 3900 * time.Millisecond, 2, false},
			{fewer, 3, 4 * time.Second, 2, true},
			{fewer, 3, time.Minute, 2, false},
			{fewer, 3, time.Hour, 2, false},
		}},
		{"the other one goes first", []step{
			{all, 2, 0, 0, false},
			{fewer, 2, time.Second, 3, false},
			{fewer, 2, 5 * time.Second, 3, false},
			{fewer, 2, 6 * time.Second, 3, true},
		}},
		{"it is answered in between", []step{
			{all, 3, 0, 0, false},
			{fewer, 3, time.Second, 2, false},
			{fewer, 3, 3 * time.Second, 0, false},
			{fewer, 3, 4 * time.Second, 2, false},
			{fewer, 3, 7 * time.Second, 2, true},
		}},
		{"the silent one is evicted", []step{
			{all, 3, 0, 0, false},
			{fewer, 3, time.Second, 4, false},
			{fewest, 3, 3 * time.Second, 0, false},
			{fewest, 3, 9 * time.Second, 0, false},
		}},
		{"another one is lost later", []step{
			{all, 3, 0, 0, false},
			{fewer, 3, time.Second, 2, false},
			{fewer, 3, 4 * time.Second, 2, true},
			{fewest, 3, time.Minute, 2, false},
			{fewest, 3, time.Minute + 3*time.Second, 2, true},
		}},
		{"it has come back as another boot", []step{
			{all, 3, 0, 0, false},
			{fewer, 3, time.Second, 2, false},
			{again, 5, time.Minute, 3, false},
			{again, 5, time.Hour, 3, false},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var im impasse
			for i, s := range row.steps {
				im.installed(s.config, s.boot)
				now := limiter.Instant(1).Add(s.at)
				if got := im.stepsDown(now, s.silent); got != s.want {
					t.Errorf("step %d, at %v: it steps down: %v, want %v", i+1, s.at, got, s.want)
				}
			}
		})
	}
}
