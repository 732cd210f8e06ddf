package limiter_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// The worked examples of the articles that this limiter was drawn from, with the articles' numbers
// as output. Those that more than one of them tells stand in example_test.go: five articles a
// minute (fixedWindow), ten requests across the edge of two minutes (twiceTheLimit), and 3 + 5 × 70
// % = 6 (slidingWindow).

// These are the examples of "High-performance rate limiting" (2016).

// RL.REDUCE TwoPerMin 2 60, three times. The replies are the tokens that were there before each was
// taken.
func Example_twoPerMinute() {
	l, _ := limiter.New(limiter.Spec{
		Name: "TwoPerMin", Algorithm: limiter.TokenBucket, Limit: 2,
		Per: 60 * time.Second, Anchor: limiter.FirstHit,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	for range 3 {
		before := table.Peek(noon, l, "TwoPerMin", limiter.Hash("TwoPerMin"), 0).Remaining
		d := table.Take(noon, l, "TwoPerMin", limiter.Hash("TwoPerMin"), 1)
		fmt.Println(before, d.Allowed)
	}
	// Output:
	// 2 true
	// 1 true
	// 0 false
}

// "A single IP can only create 20 accounts per day", "devices are allowed 5 failed credit card
// transactions per day", "users may only send 1 message per day with risky keywords": of thirty
// tries each.
func Example_perDay() {
	for _, s := range []limiter.Spec{
		{Name: "accounts", Limit: 20},
		{Name: "failed cards", Limit: 5},
		{Name: "risky messages", Limit: 1},
	} {
		s.Algorithm, s.Per, s.Anchor = limiter.TokenBucket, 24*time.Hour, limiter.FirstHit
		l, _ := limiter.New(s)
		table := limiter.NewTable(limiter.TableConfig{})
		admitted := 0
		for range 30 {
			if table.Take(noon, l, "somebody", limiter.Hash("somebody"), 1).Allowed {
				admitted++
			}
		}
		fmt.Println(s.Name, admitted)
	}
	// Output:
	// accounts 20
	// failed cards 5
	// risky messages 1
}

// "A maximum of 10 failed logins per hour, which refill at a rate of 1 login per hour": a user that
// has used up ten at noon gets one an hour, however long the tries go on.
func Example_failedLogins() {
	l, _ := limiter.New(limiter.Spec{
		Name: "failed logins", Algorithm: limiter.TokenBucket,
		Limit: 10, Refill: 1, Per: time.Hour, Anchor: limiter.FirstHit,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	for _, clock := range []string{"0h", "1h", "3h", "24h"} {
		admitted := 0
		for table.Take(at(clock), l, "mallory", limiter.Hash("mallory"), 1).Allowed {
			admitted++
		}
		fmt.Println(clock, admitted)
	}
	// Output:
	// 0h 10
	// 1h 1
	// 3h 2
	// 24h 10
}

// "A maximum of $200 worth of purchases per day, which refills at a rate of $50 per day": a request
// costs what is bought.
func Example_dollars() {
	l, _ := limiter.New(limiter.Spec{
		Name: "purchases", Algorithm: limiter.TokenBucket, Limit: 200,
		Refill: 50, Per: 24 * time.Hour, Anchor: limiter.FirstHit,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	address := "1 Main Street"
	for _, purchase := range []struct {
		clock   string
		dollars int64
	}{{"0h", 150}, {"1h", 60}, {"2h", 50}, {"24h", 60}, {"24h", 50}} {
		d := table.Take(at(purchase.clock), l, address, limiter.Hash(address), purchase.dollars)
		fmt.Println(purchase.clock, purchase.dollars, answer(d))
	}
	// Output:
	// 0h 150 allowed, 50 left
	// 1h 60 denied, again in 23h0m0s
	// 2h 50 allowed, 0 left
	// 24h 60 denied, again in 24h0m0s
	// 24h 50 allowed, 0 left
}

// Strict mode goes on refusing until the sender stops: each request that finds the bucket empty
// puts the refill off.
func Example_strict() {
	for _, strict := range []bool{false, true} {
		l, _ := limiter.New(limiter.Spec{
			Name: "strict", Algorithm: limiter.TokenBucket, Limit: 2, Per: time.Minute,
			Anchor: limiter.FirstHit, Strict: strict,
		})
		table := limiter.NewTable(limiter.TableConfig{})
		admitted := 0
		for second := range 600 { // one request a second, for ten minutes
			if table.Take(noon.Add(time.Duration(second)*time.Second), l, "spammer",
				limiter.Hash("spammer"), 1).Allowed {
				admitted++
			}
		}
		after := table.Take(at("11m"), l, "spammer", limiter.Hash("spammer"), 1)
		fmt.Println("strict", strict, "admits", admitted, "and a minute later", after.Allowed)
	}
	// Output:
	// strict false admits 20 and a minute later true
	// strict true admits 2 and a minute later true
}

// Client timestamps: what happened last week is judged by last week's clock, and the same as if it
// happened now.
func Example_historicalData() {
	l, _ := limiter.New(limiter.Spec{
		Name: "TwoPerMin", Algorithm: limiter.TokenBucket, Limit: 2,
		Per: time.Minute, Anchor: limiter.FirstHit,
	})
	for _, begin := range []limiter.Instant{noon, noon.Add(-7 * 24 * time.Hour)} {
		table := limiter.NewTable(limiter.TableConfig{})
		var allowed []bool
		for _, second := range []time.Duration{0, 10, 20, 60} {
			d := table.Take(begin.Add(second*time.Second), l, "TwoPerMin",
				limiter.Hash("TwoPerMin"), 1)
			allowed = append(allowed, d.Allowed)
		}
		fmt.Println(allowed)
	}
	// Output:
	// [true true false true]
	// [true true false true]
}

// These are the examples of "An alternative approach to rate limiting" (2017), and of the article
// that quotes it.

// If only a single token remains and two servers ask at once, a store that reads and then writes
// lets both through.
func Example_lastToken() {
	l, _ := limiter.New(limiter.Spec{
		Name: "tokens", Algorithm: limiter.TokenBucket, Limit: 2,
		Per: time.Hour,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	table.Take(noon, l, "user 1", limiter.Hash("user 1"), 1)
	var servers sync.WaitGroup
	var through atomic.Int64
	for range 2 {
		servers.Go(func() {
			if table.Take(noon, l, "user 1", limiter.Hash("user 1"), 1).Allowed {
				through.Add(1)
			}
		})
	}
	servers.Wait()
	fmt.Println(through.Load(), "let through")
	// Output: 1 let through
}

// "2 requests per second in addition to 5 requests per minute": of ten at 11:00:59 and 11:01:00
// four are admitted instead of ten. The article adds why it did not do so: three requests at once
// are refused although the minute is nearly free.
func Example_twoPerSecondAndFivePerMinute() {
	second, _ := limiter.New(limiter.Spec{
		Name: "second", Algorithm: limiter.FixedWindow, Limit: 2,
		Per: time.Second,
	})
	minute, _ := limiter.New(limiter.Spec{
		Name: "minute", Algorithm: limiter.FixedWindow, Limit: 5,
		Per: time.Minute,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	hash := limiter.Hash("alice")
	both := []limiter.Item{{
		Limit: second, Key: "alice", Hash: hash,
		Request: limiter.Request{Cost: 1},
	}, {
		Limit: minute, Key: "alice", Hash: hash,
		Request: limiter.Request{Cost: 1},
	}}
	for _, clock := range []string{"-1h0m1s", "-1h"} {
		admitted := 0
		for range 5 {
			if table.TakeAll(at(clock), both, make([]limiter.Decision, 2)) {
				admitted++
			}
		}
		fmt.Println(admitted, "of 5,", table.Peek(at(clock), minute, "alice", hash, 0).Remaining,
			"left of the minute")
	}
	// Output:
	// 2 of 5, 3 left of the minute
	// 2 of 5, 3 left of the minute
}

// A log has requests at 10:00:00, 10:00:54 and 10:01:38. What it counts at the last one is what
// came within the minute before: two.
func Example_slidingLogSize() {
	l, _ := limiter.New(limiter.Spec{
		Name: "log", Algorithm: limiter.SlidingLog, Limit: 5,
		Per: time.Minute,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	for _, clock := range []string{"-2h", "-1h59m6s", "-1h58m22s"} {
		d := table.Take(at(clock), l, "user 1", limiter.Hash("user 1"), 1)
		fmt.Println(d.Limit - d.Remaining)
	}
	// Output:
	// 1
	// 2
	// 2
}

// A log that counts refused requests extends the ban of a caller that goes on asking; one that does
// not admits a request as soon as there is room.
func Example_banIsExtended() {
	for _, countRejected := range []bool{true, false} {
		l, _ := limiter.New(limiter.Spec{
			Name: "log", Algorithm: limiter.SlidingLog, Limit: 25,
			Per: time.Minute, CountRejected: countRejected,
		})
		table := limiter.NewTable(limiter.TableConfig{})
		admitted := 0
		for second := range 600 { // one request a second, for ten minutes
			if table.Take(noon.Add(time.Duration(second)*time.Second), l, "attacker",
				limiter.Hash("attacker"), 1).Allowed {
				admitted++
			}
		}
		fmt.Println(admitted)
	}
	// Output:
	// 25
	// 250
}

// 500 requests per day and user, 10,000 users: a log keeps 500 values each, which with 4 bytes a
// value makes 20 MB. Counters of 60 parts make 2.4 MB. (Here a value has 8 bytes, and there is one
// counter more, for the part that the beginning of the window cuts.)
func Example_memoryOfALogAndOfCounters() {
	const users, bytes = 10_000, 4
	for _, a := range []limiter.Algorithm{limiter.SlidingLog, limiter.SlidingCounter} {
		l, _ := limiter.New(limiter.Spec{
			Name: "daily", Algorithm: a, Limit: 500,
			Per: 24 * time.Hour,
		})
		table := limiter.NewTable(limiter.TableConfig{})
		for request := range 500 {
			table.Take(noon.Add(time.Duration(request)*170*time.Second), l, "user 1",
				limiter.Hash("user 1"), 1)
		}
		table.Each(at("23h59m"), func(l *limiter.Limit, _ string, state []int64,
			_ limiter.Decision,
		) bool {
			values := len(state) - 1 // beside a word that says where they begin
			if l.Algorithm == limiter.SlidingCounter {
				values--
			}
			fmt.Printf("%v: %d values, %d in all, %.1f MB\n", a, values, values*users,
				float64(values*users*bytes)/1e6)
			return true
		})
	}
	// Output:
	// sliding_log: 500 values, 5000000 in all, 20.0 MB
	// sliding_counter: 60 values, 600000 in all, 2.4 MB
}

// An hourly limit is counted in minutes. At 11:00:35 a lenient one ignores three requests that came
// between 10:00:00 and 10:00:59, up to 59 seconds too early; a harsh one sums up an hour and a
// minute. On the full minute both sum up the hour.
func Example_lenientOrHarsh() {
	for _, lenient := range []bool{true, false} {
		l, _ := limiter.New(limiter.Spec{
			Name: "hourly", Algorithm: limiter.SlidingCounter,
			Limit: 10, Per: time.Hour, Lenient: lenient,
		})
		table := limiter.NewTable(limiter.TableConfig{})
		hash := limiter.Hash("user 1")
		for _, clock := range []string{"-2h", "-1h59m40s", "-1h59m1s"} {
			table.Take(at(clock), l, "user 1", hash, 1)
		}
		for _, clock := range []string{"-1h", "-59m25s", "-59m"} {
			d := table.Peek(at(clock), l, "user 1", hash, 0)
			fmt.Print(d.Limit-d.Remaining, " ")
		}
		fmt.Println("lenient", lenient)
	}
	// Output:
	// 3 0 0 lenient true
	// 3 3 0 lenient false
}

// A shadow ban: the attacker goes on receiving a 200, and no more invitations are sent. What is
// decided and what the caller is told are two things.
func Example_shadowBan() {
	l, _ := limiter.New(limiter.Spec{
		Name: "invitations", Algorithm: limiter.SlidingCounter,
		Limit: 25, Per: time.Minute, OnDeny: limiter.DenyShadow,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	statuses, sent := map[int]int{}, 0
	for range 100 {
		d := table.Take(noon, l, "attacker", limiter.Hash("attacker"), 1)
		if d.Allowed {
			sent++
		}
		if d.Allowed || l.NeverDenies() {
			statuses[200]++
		} else {
			statuses[429]++
		}
	}
	fmt.Println(statuses, sent, "sent")
	// Output: map[200:100] 25 sent
}

// These are the examples of "Rate limiter design techniques with scenarios and solutions" (2021).

// At most 500 requests in the last hour, one every six seconds for two hours: a log that counts
// dropped requests too "will affect the user for the next 1 hour", one that does not admits 500 in
// any hour, and so do counters per minute.
func Example_fiveHundredAnHour() {
	for _, s := range []limiter.Spec{
		{Name: "drops count", Algorithm: limiter.SlidingLog, CountRejected: true},
		{Name: "log", Algorithm: limiter.SlidingLog},
		{Name: "counters per minute", Algorithm: limiter.SlidingCounter, Lenient: true},
	} {
		s.Limit, s.Per = 500, time.Hour
		l, _ := limiter.New(s)
		table := limiter.NewTable(limiter.TableConfig{})
		var admitted [2]int
		for request := range 1200 {
			if table.Take(noon.Add(time.Duration(request)*6*time.Second), l, "user",
				limiter.Hash("user"), 1).Allowed {
				admitted[request/600]++
			}
		}
		fmt.Println(s.Name, admitted)
	}
	// Output:
	// drops count [500 0]
	// log [500 500]
	// counters per minute [500 500]
}

// A request at 11:03:46 is counted at 11:03:00: an hour later it leaves the sum with that minute,
// not with its second.
func Example_floorOfTheMinute() {
	l, _ := limiter.New(limiter.Spec{
		Name: "partial", Algorithm: limiter.SlidingCounter, Limit: 500,
		Per: time.Hour, Lenient: true,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	d := table.Take(at("-56m14s"), l, "user", limiter.Hash("user"), 1) // 11:03:46
	fmt.Println("counts until", time.Unix(0, int64(at("-56m14s").Add(d.ResetAfter-1))).UTC().Format(
		time.TimeOnly))
	// Output: counts until 12:03:00
}

// Max 10 requests per minute, with a gap of 2 seconds between each request: one every second.
func Example_tenAMinuteWithAGap() {
	l, _ := limiter.New(limiter.Spec{
		Name: "gap", Algorithm: limiter.SlidingLog, Limit: 10,
		Per: time.Minute, MinGap: 2 * time.Second,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	admitted := []int{}
	for second := range 64 {
		if table.Take(noon.Add(time.Duration(second)*time.Second), l, "user", limiter.Hash("user"),
			1).Allowed {
			admitted = append(admitted, second)
		}
	}
	fmt.Println(admitted)
	// Output: [0 2 4 6 8 10 12 14 16 18 60 62]
}

// Its second approach: a gap of 2 seconds first, and then a counter of the clock's minute. It is
// not rolling, so across the edge of two minutes twenty pass within 40 seconds.
func Example_gapAndCounterOfTheMinute() {
	gap, _ := limiter.New(limiter.Spec{
		Name: "gap", Algorithm: limiter.SlidingLog, Limit: 1,
		Per: 2 * time.Second,
	})
	minute, _ := limiter.New(limiter.Spec{
		Name: "minute", Algorithm: limiter.FixedWindow, Limit: 10,
		Per: time.Minute,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	hash := limiter.Hash("user")
	both := []limiter.Item{
		{Limit: gap, Key: "user", Hash: hash, Request: limiter.Request{Cost: 1}},
		{Limit: minute, Key: "user", Hash: hash, Request: limiter.Request{Cost: 1}},
	}
	admitted := 0
	for second := 40; second < 80; second++ {
		if table.TakeAll(noon.Add(time.Duration(second)*time.Second), both,
			make([]limiter.Decision, 2)) {
			admitted++
		}
	}
	fmt.Println(admitted)
	// Output: 20
}

// These are the examples of "Designing a rate limiter" (2023).

// Two requests per minute, counted by a log that refused requests enter as well: at 0:55 it has
// three entries, which is too many; at 1:27 those before 0:27 are cleared, and with its own there
// are two.
func Example_slidingLog() {
	l, _ := limiter.New(limiter.Spec{
		Name: "log", Algorithm: limiter.SlidingLog, Limit: 2,
		Per: time.Minute, CountRejected: true,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	for _, clock := range []string{"1s", "15s", "55s", "1m27s"} {
		fmt.Println(clock, table.Take(at(clock), l, "alice", limiter.Hash("alice"), 1).Allowed)
	}
	// Output:
	// 1s true
	// 15s true
	// 55s false
	// 1m27s true
}

// A bucket of three tokens, refilled with three at the top of the minute: one request at 0:01, two
// at 0:15 which empty it, one at 0:58 that is denied, and at 1:00 all is as it was.
func Example_tokenBucket() {
	l, _ := limiter.New(limiter.Spec{
		Name: "bucket", Algorithm: limiter.TokenBucket, Limit: 3,
		Refill: 3, Per: time.Minute, Anchor: limiter.Epoch,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	for _, clock := range []string{"1s", "15s", "15s", "58s"} {
		fmt.Println(clock, answer(table.Take(at(clock), l, "alice", limiter.Hash("alice"), 1)))
	}
	fmt.Println("1m0s", table.Peek(at("1m"), l, "alice", limiter.Hash("alice"), 0).Remaining,
		"left")
	// Output:
	// 1s allowed, 2 left
	// 15s allowed, 1 left
	// 15s allowed, 0 left
	// 58s denied, again in 2s
	// 1m0s 3 left
}

// A leaky bucket holds requests in a queue, here of four, from which one leaves every two seconds.
// Six come at once: the first leaves at once, four wait for their turn, and the sixth finds the
// bucket filled to the brim.
func Example_leakyBucket() {
	l, _ := limiter.New(limiter.Spec{
		Name: "queue", Algorithm: limiter.LeakyBucket, Limit: 30,
		Per: time.Minute, Burst: 4,
	})
	table := limiter.NewTable(limiter.TableConfig{})
	for range 6 {
		d := table.Take(noon, l, "alice", limiter.Hash("alice"), 1)
		if d.Allowed {
			fmt.Println("leaves after", d.Delay)
		} else {
			fmt.Println(answer(d))
		}
	}
	// Output:
	// leaves after 0s
	// leaves after 2s
	// leaves after 4s
	// leaves after 6s
	// leaves after 8s
	// denied, again in 2s
}

// An API responds at most 500 times an hour, whichever algorithm counts: of 600 requests at once,
// 500 pass.
func Example_fiveHundredAtOnce() {
	for _, a := range []limiter.Algorithm{
		limiter.TokenBucket, limiter.FixedWindow,
		limiter.SlidingLog, limiter.SlidingWindow, limiter.SlidingCounter,
	} {
		l, _ := limiter.New(limiter.Spec{Name: "api", Algorithm: a, Limit: 500, Per: time.Hour})
		table := limiter.NewTable(limiter.TableConfig{})
		passed := 0
		for range 600 {
			if table.Take(noon, l, "caller", limiter.Hash("caller"), 1).Allowed {
				passed++
			}
		}
		fmt.Println(a, passed)
	}
	// Output:
	// token_bucket 500
	// fixed_window 500
	// sliding_log 500
	// sliding_window 500
	// sliding_counter 500
}
