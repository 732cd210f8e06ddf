package limiter_test

import (
	"fmt"
	"time"

	"penstock/limiter"
)

// noon is a full hour, so that examples can speak of minutes.
var noon = limiter.Instant(time.Date(2017, 3, 30, 12, 0, 0, 0, time.UTC).UnixNano())

func at(clock string) limiter.Instant {
	d, err := time.ParseDuration(clock)
	if err != nil {
		panic(err)
	}
	return noon.Add(d)
}

func answer(d limiter.Decision) string {
	if !d.Allowed {
		return fmt.Sprintf("denied, again in %v", d.RetryAfter)
	}
	return fmt.Sprintf("allowed, %d left", d.Remaining)
}

func Example() {
	login, err := limiter.New(limiter.Spec{
		Name: "login", Algorithm: limiter.GCRA, Limit: 2,
		Per: time.Minute,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	table := limiter.NewTable(limiter.TableConfig{})
	hash := limiter.Hash("alice")
	for _, clock := range []string{"0s", "1s", "2s", "32s"} {
		fmt.Println(clock, answer(table.Take(at(clock), login, "alice", hash, 1)))
	}
	// Output:
	// 0s allowed, 1 left
	// 1s allowed, 0 left
	// 2s denied, again in 28s
	// 32s allowed, 0 left
}

// A fixed window of five a minute denies the sixth request of a minute, and lets the next minute
// begin anew.
func Example_fixedWindow() {
	l, _ := limiter.New(limiter.Spec{
		Name: "articles", Algorithm: limiter.FixedWindow, Limit: 5,
		Per: time.Minute,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	for _, clock := range []string{"0s", "10s", "20s", "30s", "40s", "55s", "60s"} {
		fmt.Println(clock, answer(table.Take(at(clock), l, "alice", limiter.Hash("alice"), 1)))
	}
	// Output:
	// 0s allowed, 4 left
	// 10s allowed, 3 left
	// 20s allowed, 2 left
	// 30s allowed, 1 left
	// 40s allowed, 0 left
	// 55s denied, again in 5s
	// 60s allowed, 4 left
}

// A fixed window admits twice its limit within two seconds, across the edge of two windows: five at
// 11:00:59 and five at 11:01:00. A bucket that refills five a minute does not.
func Example_twiceTheLimit() {
	for _, a := range []limiter.Algorithm{limiter.FixedWindow, limiter.GCRA} {
		l, _ := limiter.New(limiter.Spec{Name: "edge", Algorithm: a, Limit: 5, Per: time.Minute})
		table := limiter.NewTable(limiter.TableConfig{})
		admitted := 0
		for _, clock := range []string{"-1h0m1s", "-1h"} {
			for range 5 {
				if table.Take(at(clock), l, "alice", limiter.Hash("alice"), 1).Allowed {
					admitted++
				}
			}
		}
		fmt.Printf("%v: %d of 10\n", a, admitted)
	}
	// Output:
	// fixed_window: 10 of 10
	// gcra: 5 of 10
}

// Seven a minute, five requests in the minute before, three in this one, and a request after 30 %
// of it: of the five, 70 % still count, 3 + 3.5 is rounded down to 6, and there is room for one.
func Example_slidingWindow() {
	l, _ := limiter.New(limiter.Spec{
		Name: "rolling", Algorithm: limiter.SlidingWindow, Limit: 7,
		Per: time.Minute,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	hash := limiter.Hash("alice")
	table.Take(at("30s"), l, "alice", hash, 5)
	for _, clock := range []string{"1m10s", "1m15s", "1m17s", "1m18s", "1m18s"} {
		fmt.Println(clock, answer(table.Take(at(clock), l, "alice", hash, 1)))
	}
	// Output:
	// 1m10s allowed, 2 left
	// 1m15s allowed, 2 left
	// 1m17s allowed, 1 left
	// 1m18s allowed, 0 left
	// 1m18s denied, again in 6.000000001s
}

// Fifty a minute, 42 requests in the minute before and 18 in the first 15 seconds of this one: 42 ×
// 45/60 + 18 = 49.5, which is rounded down.
func Example_slidingWindowEstimate() {
	l, _ := limiter.New(limiter.Spec{
		Name: "rolling", Algorithm: limiter.SlidingWindow, Limit: 50,
		Per: time.Minute,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	hash := limiter.Hash("10.0.0.1")
	table.Take(at("1s"), l, "10.0.0.1", hash, 42)
	table.Take(at("1m14s"), l, "10.0.0.1", hash, 14)
	table.Take(at("1m15s"), l, "10.0.0.1", hash, 4)
	d := table.Peek(at("1m15s"), l, "10.0.0.1", hash, 0)
	fmt.Println(d.Limit - d.Remaining)
	// Output: 49
}

// A burst of 16 with 30 a minute: the first request leaves 15, and the bucket is full again after
// two seconds.
func ExampleTable_Take() {
	l, _ := limiter.New(limiter.Spec{
		Name: "throttle", Algorithm: limiter.GCRA, Limit: 30,
		Per: time.Minute, Burst: 16,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	d := table.Take(noon, l, "user123", limiter.Hash("user123"), 1)
	fmt.Println(d.Allowed, d.Limit, d.Remaining, d.RetryAfter == limiter.Never, d.ResetAfter)
	d = table.Take(noon, l, "user123", limiter.Hash("user123"), 17)
	fmt.Println(d.Allowed, d.Limit, d.Remaining, d.RetryAfter == limiter.Never, d.ResetAfter)
	// Output:
	// true 16 15 true 2s
	// false 16 15 true 2s
}

// Ten a minute and twenty an hour for one key are taken together: when the hour is used up, the
// minute is not charged.
func ExampleTable_TakeAll() {
	minute, _ := limiter.New(limiter.Spec{
		Name: "minute", Algorithm: limiter.FixedWindow, Limit: 10,
		Per: time.Minute,
	})
	hour, _ := limiter.New(limiter.Spec{
		Name: "hour", Algorithm: limiter.FixedWindow, Limit: 20,
		Per: time.Hour,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	hash := limiter.Hash("alice")
	for _, clock := range []string{"0s", "1m", "2m"} {
		items := []limiter.Item{
			{
				Limit: minute, Key: "alice", Hash: hash,
				Request: limiter.Request{Cost: 8},
			},
			{Limit: hour, Key: "alice", Hash: hash, Request: limiter.Request{Cost: 8}},
		}
		out := make([]limiter.Decision, len(items))
		all := table.TakeAll(at(clock), items, out)
		fmt.Println(all, answer(out[0]), "/", answer(out[1]))
	}
	fmt.Println(table.Peek(at("2m"), minute, "alice", hash, 0).Remaining, "left this minute")
	// Output:
	// true allowed, 2 left / allowed, 12 left
	// true allowed, 2 left / allowed, 4 left
	// false allowed, 10 left / denied, again in 58m0s
	// 10 left this minute
}
