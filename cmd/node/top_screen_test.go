package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/rpc/history"
)

// lookAt is what nodes have said at a time, in seconds.
func lookAt(seconds float64, nodes map[string]topNode, keys ...topRow) *topLook {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC).
		Add(time.Duration(seconds * float64(time.Second)))
	for name, n := range nodes {
		n.at = at
		nodes[name] = n
	}
	return &topLook{at: at, nodes: nodes, list: topList{Keys: keys, Seen: int64(len(keys))}}
}

func sketch(seconds float64, keys ...history.Heavy) history.HeavyList {
	return history.HeavyList{Keys: keys, Seconds: seconds, Sampled: 1}
}

// Promise: rates are what has changed since the look before, at the nodes that have answered both
// times; a node that was restarted, or that is new, does not make one out of its whole life.
func TestTopTotals(t *testing.T) {
	before := lookAt(0, map[string]topNode{
		"a": {boot: 1, allowed: 100, denied: 10}, "b": {boot: 2, allowed: 20},
		"gone": {boot: 3, allowed: 5},
	})
	now := lookAt(2, map[string]topNode{
		"a": {boot: 1, allowed: 120, denied: 16, degraded: 1}, "b": {boot: 7, allowed: 50},
		"new": {boot: 4, allowed: 400},
	})
	want := topTotals{
		allowed: 570, denied: 16, degraded: 1, allowedRate: 10, deniedRate: 3, degradedRate: .5,
		rated: true,
	}
	if got := now.totals(before); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
	if got := now.totals(nil); got.rated || got.allowed != 570 {
		t.Errorf("the first look: %+v; want no rate", got)
	}
}

// Promise: the rate of a key is that of all doors since the look before; where a sketch has dropped
// its older half, or has given the key another's place in between, nothing is counted twice.
func TestTopAskedRates(t *testing.T) {
	key := func(checks, over, denied int64) history.Heavy {
		return history.Heavy{Limit: "l", Key: "k", Checks: checks, Over: over, Denied: denied}
	}
	for _, c := range []struct {
		name          string
		before, now   history.HeavyList
		asked, denied float64
	}{
		{"the same sketch", sketch(10, key(100, 0, 7)), sketch(12, key(130, 0, 9)), 15, 1},
		{"an idle key", sketch(10, key(100, 0, 7)), sketch(12, key(100, 0, 7)), 0, 0},
		{"a new key", sketch(10), sketch(12, key(8, 0, 2)), 4, 1},
		{"a key in another's place", sketch(10), sketch(12, key(28, 20, 2)), 4, 1},
		{"a key that was displaced", sketch(10, key(9, 3, 1)), sketch(12, key(28, 20, 2)), 4, 1},
		{"its older half is gone", sketch(60, key(900, 0, 0)), sketch(30, key(90, 0, 30)), 3, 1},
	} {
		before := lookAt(0, map[string]topNode{"a": {boot: 1, asked: c.before}})
		now := lookAt(2, map[string]topNode{"a": {boot: 1, asked: c.now}})
		if got := now.askedRates(before)[limitKey{"l", "k"}]; got.asked != c.asked ||
			got.denied != c.denied {
			t.Errorf("%s: %+v; want %v, %v denied", c.name, got, c.asked, c.denied)
		}
	}
	two := map[string]topNode{}
	for i := range 2 {
		two[fmt.Sprint(i)] = topNode{boot: uint64(i), asked: sketch(10, key(20, 0, 10))}
	}
	if got := lookAt(0, two).askedRates(nil)[limitKey{"l", "k"}]; got != (askedRate{4, 2}) {
		t.Errorf("two doors: %+v; want 4, 2 denied", got)
	}
}

// Promise: what the screen says is what the nodes have said; which of them are missing, whether the
// list is cut off, and how exact it is, stands there.
func TestTopScreen(t *testing.T) {
	s := &topScreen{}
	row := func(key, owner string, used int64) topRow {
		return topRow{
			Key: key, Name: "api", Limit: 1000, Used: used, ResetAfter: 61_000, Owner: owner,
		}
	}
	hot := history.Heavy{Limit: "login", Key: "hot", Checks: 40, Denied: 20}
	first := lookAt(0, map[string]topNode{
		"n1": {boot: 1, allowed: 10}, "n2": {boot: 2, allowed: 10},
	}, row("alice", "n1", 900), row("eve\n", "n2", 1000), row("bob", "n2", 10))
	s.take(first)
	second := lookAt(1, map[string]topNode{
		"n1":      {boot: 1, allowed: 1234, denied: 20, partial: true, asked: sketch(10, hot)},
		"agent-1": {boot: 3, agent: true},
	}, row("alice", "n1", 901))
	second.list.Partial = true
	second.missing = []absent{{"n2", "no answer within 2s"}}
	second.failed = []absent{{"n3", "failed 9s ago"}}
	s.take(second)
	got := strings.Join(s.lines(second.at, 80, 14, false), "\n")
	want := `penstock top  12:00:01  1 member and 1 agent, by used
allowed 1,224/s (1,234)  denied 20.0/s (20)  degraded 0.0/s (0)
n3 failed 9s ago, without a goodbye
without n2: no answer within 2s
USED     OF  ASKED/S  DENIED/S  FULL IN  LIMIT  OWNER  KEY
 901  1,000      0.0       0.0     1m1s  api    n1     alice
   –      –      4.0       2.0        –  login  –      hot


12:00:01 agent-1 answers
12:00:01 n2 does not answer any more
CUT OFF: 1 keys looked at, n1 had no time for more: raise --timeout
asked and denied a second: exact
keys 1 to 2 of 2   q quits  j k scroll  o other order`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	s.press('o')
	if lines := s.lines(second.at, 80, 14, false); !strings.Contains(lines[5], "hot") {
		t.Errorf("by asked for, hot comes first:\n%s", strings.Join(lines, "\n"))
	}
	s.take(&topLook{at: first.at.Add(5 * time.Second), err: errors.New("cannot reach n1")})
	got = strings.Join(s.lines(first.at.Add(8*time.Second), 100, 14, false), "\n")
	if !strings.Contains(got, "NO NODE ANSWERS since 12:00:05 (3s); what you see is older than "+
		"that: cannot reach n1") {
		t.Errorf("without any node:\n%s", got)
	}
}

// Promise: no size of a window breaks the screen, and it is filled and not overrun.
func TestTopSizes(t *testing.T) {
	s := &topScreen{}
	var keys []topRow
	for i := range 200 {
		keys = append(keys, topRow{
			Key: strings.Repeat("kéy\t", 50), Name: strings.Repeat("limit", 20),
			Owner: "a-long-name",
			Limit: 9e18, Used: 9e18 - int64(i), ResetAfter: 1e15,
		})
	}
	s.take(lookAt(0, map[string]topNode{"a-long-name": {boot: 1}}, keys...))
	for _, width := range []int{1, 2, 20, 40, 79, 80, 81, 200, 1000} {
		for _, height := range []int{1, 2, 5, 6, 24, 100, 500} {
			lines := s.lines(s.look.at, width, height, false)
			if len(lines) != height {
				t.Errorf("%d by %d: %d lines", width, height, len(lines))
			}
			for _, l := range lines {
				if n := len([]rune(l)); n > width {
					t.Errorf("%d by %d: %d columns: %q", width, height, n, l)
				}
			}
			s.press(keyEnd)
			s.press(keyPageUp)
		}
	}
	lines := s.lines(s.look.at, 80, 24, true)
	for _, l := range lines {
		if strings.Contains(l, "\t") {
			t.Errorf("a key writes to the terminal what it likes: %q", l)
		}
	}
}

// A look that takes a node long is followed by a longer pause; one that waits for a node that is
// silent is not.
func TestTopPause(t *testing.T) {
	for _, c := range []struct{ took, slowest, want time.Duration }{
		{10 * time.Millisecond, 10 * time.Millisecond, 990 * time.Millisecond},
		{time.Second, time.Second, 4 * time.Second},
		{2 * time.Second, 10 * time.Millisecond, 40 * time.Millisecond},
	} {
		if got := pauseAfter(c.took, c.slowest); got != c.want {
			t.Errorf("after %v, %v: %v; want %v", c.took, c.slowest, got, c.want)
		}
	}
}

// Promise: keys are known however a terminal sends them, and in whatever pieces; what is unknown
// does nothing.
func TestKeys(t *testing.T) {
	for _, c := range []struct {
		typed string
		want  []key
	}{
		{"jq", []key{'j', 'q'}},
		{"\x1b[A\x1bOB\x1b[5~\x1b[6~", []key{keyUp, keyDown, keyPageUp, keyPageDown}},
		{"\x1b[H\x1b[1~\x1bOF\x1b[4~", []key{keyHome, keyHome, keyEnd, keyEnd}},
		{"\x03\x1a", []key{keyInterrupt, keySuspend}},
		{"\x1bj", []key{'j'}},
		{"\x1b\x1b[A", []key{keyUp}},
		{"\x1b[15~\x1b[1;5Aq", []key{'q'}},
		{"\x1b[" + strings.Repeat("0", 100), slices.Repeat([]key{'0'}, 100-longestSequence+1)},
		{"é\x00\r", nil},
	} {
		for _, size := range []int{1, len(c.typed)} {
			var d keyDecoder
			var got []key
			for piece := range slices.Chunk([]byte(c.typed), size) {
				got = append(got, d.decode(piece)...)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q in pieces of %d: %v; want %v", c.typed, size, got, c.want)
			}
		}
	}
}
