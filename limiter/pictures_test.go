package limiter_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
)

var updateDocs = flag.Bool("update-docs", false, "write the pictures of docs/concepts.md anew")

// pictured are the algorithms that docs/concepts.md draws: five units in ten seconds each.
var pictured = []struct {
	title string
	spec  limiter.Spec
}{
	{"gcra", limiter.Spec{Algorithm: limiter.GCRA}},
	{"gcra, burst: 1", limiter.Spec{Algorithm: limiter.GCRA, Burst: 1}},
	{"fixed_window", limiter.Spec{Algorithm: limiter.FixedWindow}},
	{"fixed_window, first_hit", limiter.Spec{
		Algorithm: limiter.FixedWindow,
		Anchor:    limiter.FirstHit,
	}},
	{"sliding_window", limiter.Spec{Algorithm: limiter.SlidingWindow}},
	{"sliding_log", limiter.Spec{Algorithm: limiter.SlidingLog}},
	{"sliding_log, min_gap: 1s", limiter.Spec{Algorithm: limiter.SlidingLog, MinGap: time.Second}},
	{"sliding_counter, 5 buckets", limiter.Spec{Algorithm: limiter.SlidingCounter, Buckets: 5}},
	{"the same, lenient", limiter.Spec{
		Algorithm: limiter.SlidingCounter, Buckets: 5,
		Lenient: true,
	}},
	{"token_bucket, first_hit", limiter.Spec{
		Algorithm: limiter.TokenBucket,
		Anchor:    limiter.FirstHit,
	}},
	{"the same, strict", limiter.Spec{
		Algorithm: limiter.TokenBucket, Anchor: limiter.FirstHit,
		Strict: true,
	}},
	{"leaky_bucket, burst: 4", limiter.Spec{Algorithm: limiter.LeakyBucket, Burst: 4}},
}

// offered are the requests of each second: a few, silence, a flood across the end of a window, and
// then one or two a second.
const offered = "0010100044440000001111111111222222222222"

// picture draws what each algorithm admits of the same requests.
func picture(t *testing.T) string {
	var b strings.Builder
	line := func(title, seconds, most string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-27s%s  %s", title, seconds, most), " ") +
			"\n")
	}
	line("", "0s        10s       20s       30s       ", "most in 10s")
	line("requests", offered, "")
	for _, p := range pictured {
		p.spec.Name, p.spec.Limit, p.spec.Per = "five", 5, 10*time.Second
		l := mustNew(t, p.spec)
		table := limiter.NewTable(limiter.TableConfig{})
		var admitted []limiter.Instant
		seconds := ""
		for s, digit := range offered {
			n, requests := 0, int(digit-'0')
			for i := range requests {
				now := noon.Add(time.Duration(s)*time.Second +
					time.Duration(i)*time.Second/time.Duration(requests))
				if d := table.Take(now, l, "alice", limiter.Hash("alice"), 1); d.Allowed {
					n++
					admitted = append(admitted, now.Add(d.Delay))
				}
			}
			switch {
			case n > 0:
				seconds += fmt.Sprint(n)
			case requests > 0:
				seconds += "·"
			default:
				seconds += " "
			}
		}
		line(p.title, seconds, fmt.Sprint(mostWithin(admitted, 10*time.Second)))
	}
	return b.String()
}

// mostWithin is the largest number of instants, which are in order, in any span shorter than d.
func mostWithin(at []limiter.Instant, d time.Duration) (most int) {
	for i := range at {
		n := 0
		for n < len(at)-i && at[i+n] < at[i].Add(d) {
			n++
		}
		most = max(most, n)
	}
	return most
}

// Promise: the pictures of the documents are drawn by the arithmetic itself.
func TestPictures(t *testing.T) {
	const name, begin, end = "../docs/concepts.md", "<!-- pictures: go test ./limiter -run " +
		"TestPictures -update-docs -->\n```text\n", "```\n<!-- end of the pictures -->"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	drawn, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for pictures", name)
	}
	want := picture(t)
	if *updateDocs {
		if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if drawn != want {
		t.Errorf("%s draws other pictures; go test ./limiter -run TestPictures -update-docs\n%s",
			name, want)
	}
}
