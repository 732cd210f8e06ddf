package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// topScreen is a live screen: what was seen last, and how it is looked at. Its methods read no
// clock and write nothing, so the same looks and keys give the same lines.
type topScreen struct {
	limit string // the keys are of this limit alone; empty: of all

	look   *topLook // the last one that a node answered
	totals topTotals
	list   []topLine
	err    error // no node answers, since the look after look
	lostAt time.Time
	news   []topNews

	order int // of topOrders
	scrolled
}

// scrolled is which part of a list a screen shows.
type scrolled struct {
	first int // line that is shown first
	page  int // lines that there was room for
}

// topNews is something that has happened to a node while somebody looks.
type topNews struct {
	at   time.Time
	text string
	bad  bool
}

const (
	newsRoom = 3           // lines of news that are shown
	newsFor  = time.Minute // so long
)

// take shows a new look.
func (s *topScreen) take(now *topLook) {
	if now.err != nil {
		if s.err == nil {
			s.lostAt = now.at
		}
		s.err = now.err
		return
	}
	s.err = nil
	s.note(now)
	s.totals, s.list = now.totals(s.look), now.lines(s.look)
	sortLines(s.list, s.order)
	s.look = now
	s.scroll(0, len(s.list))
}

// note remembers which nodes are gone and which are back since the look before.
func (s *topScreen) note(now *topLook) {
	if s.look == nil {
		return
	}
	add := func(bad bool, format string, a ...any) {
		s.news = append(s.news, topNews{now.at, fmt.Sprintf(format, a...), bad})
	}
	for _, name := range slices.Sorted(maps.Keys(now.nodes)) {
		old, known := s.look.nodes[name]
		switch {
		case !known:
			add(false, "%s answers", name)
		case old.boot != now.nodes[name].boot:
			add(false, "%s was restarted", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.look.nodes)) {
		if _, there := now.nodes[name]; !there {
			add(true, "%s does not answer any more", name)
		}
	}
	s.news = s.news[max(0, len(s.news)-newsRoom):]
}

// press does what a key asks for. It reports whether that is to end.
func (s *topScreen) press(k key) (quit bool) {
	if k == 'o' {
		s.order = (s.order + 1) % len(topOrders)
		sortLines(s.list, s.order)
		s.first = 0
		return false
	}
	return s.scrolled.press(k, len(s.list))
}

// press scrolls a list with so many lines. It reports whether the key means that all is to end.
func (s *scrolled) press(k key, lines int) (quit bool) {
	switch k {
	case 'q', 'Q', keyInterrupt:
		return true
	case 'j', keyDown:
		s.scroll(1, lines)
	case 'k', keyUp:
		s.scroll(-1, lines)
	case ' ', keyPageDown:
		s.scroll(max(1, s.page), lines)
	case 'b', keyPageUp:
		s.scroll(-max(1, s.page), lines)
	case 'g', keyHome:
		s.scroll(-lines, lines)
	case 'G', keyEnd:
		s.scroll(lines, lines)
	}
	return false
}

func (s *scrolled) scroll(by, lines int) {
	s.first = max(0, min(s.first+by, lines-max(1, s.page)))
}

// seen says which of so many lines are seen.
func (s *scrolled) seen(lines int) (from, to int) {
	return s.first, min(lines, s.first+s.page)
}

// painted is a line in a colour; "" is none.
type painted struct{ text, colour string }

// lines are what a terminal of a size shows at a time.
func (s *topScreen) lines(now time.Time, width, height int, colours bool) []string {
	head := s.head(now)
	foot := s.foot(now)
	s.page = max(1, height-len(head)-len(foot)-2) // the names of columns, and of keys
	s.scroll(0, len(s.list))
	foot = append(foot, s.keysHelp())
	return onScreen(append(head, s.table(width)...), foot, width, height, colours)
}

// onScreen puts foot at the lower end of a screen, and cuts off what finds no room.
func onScreen(all, foot []painted, width, height int, colours bool) []string {
	for len(all)+len(foot) < height {
		all = append(all, painted{})
	}
	all = append(all, foot...)
	all = all[:min(len(all), height)]
	lines := make([]string, len(all))
	for i, l := range all {
		if lines[i] = cut(l.text, width); colours {
			lines[i] = paint(l.colour, lines[i])
		}
	}
	return lines
}

// head says how the cluster is.
func (s *topScreen) head(now time.Time) (head []painted) {
	members, agents := 0, 0
	for _, n := range s.look.nodes {
		if n.agent {
			agents++
		} else {
			members++
		}
	}
	title := "penstock top  " + s.look.at.Format(time.TimeOnly) + "  " + some(members, "member")
	if agents > 0 {
		title += " and " + some(agents, "agent")
	}
	if s.limit != "" {
		title += "  limit " + shown(s.limit)
	}
	title += ", by " + topOrders[s.order].name
	t := s.totals
	head = []painted{
		{title, bold},
		{fmt.Sprintf("allowed %s  denied %s  degraded %s",
			total(t.allowed, t.allowedRate, t.rated), total(t.denied, t.deniedRate, t.rated),
			total(t.degraded, t.degradedRate, t.rated)), ""},
	}
	for _, a := range s.look.failed {
		head = append(head, painted{a.name + " " + a.why + ", without a goodbye", red})
	}
	for _, a := range s.look.missing {
		head = append(head, painted{"without " + a.name + ": " + a.why, red})
	}
	if s.err != nil {
		head = append(head, nobodyAnswers(s.err, s.lostAt, now))
	}
	return head
}

func nobodyAnswers(err error, since, now time.Time) painted {
	return painted{fmt.Sprintf("NO NODE ANSWERS since %s (%v); what you see is older than that: %v",
		since.Format(time.TimeOnly), now.Sub(since).Round(time.Second), err), red}
}

// some is a number of things.
func some(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return thousands(int64(n)) + " " + thing
}

// total is a sum, and how it grows.
func total(sum uint64, rate float64, rated bool) string {
	if !rated {
		return thousands(int64(sum))
	}
	return perSecond(rate) + "/s (" + thousands(int64(sum)) + ")"
}

// perSecond is a rate in few characters.
func perSecond(rate float64) string {
	if rate < 100 {
		return fmt.Sprintf("%.1f", rate)
	}
	return thousands(int64(rate + 0.5))
}

// foot says what has happened, and how exact the figures are.
func (s *topScreen) foot(now time.Time) (foot []painted) {
	for _, n := range s.news {
		if now.Sub(n.at) < newsFor {
			colour := green
			if n.bad {
				colour = red
			}
			foot = append(foot, painted{n.at.Format(time.TimeOnly) + " " + n.text, colour})
		}
	}
	exact := painted{s.exactness(), ""}
	if s.look.list.Partial {
		exact.colour = yellow
	}
	return append(foot, exact, painted{s.askedError(), ""})
}

// keysHelp says which keys are seen, and what the keyboard does.
func (s *topScreen) keysHelp() painted {
	from, to := s.seen(len(s.list))
	return painted{fmt.Sprintf("keys %d to %d of %d   q quits  j k scroll  o other order",
		min(from+1, to), to, len(s.list)), bold}
}

// exactness says how good the merged list of the keys that have used most is. Each key is in the
// table of one node, and each node looks at all of its keys, so nothing is estimated.
func (s *topScreen) exactness() string {
	looked := thousands(s.look.list.Seen) + " keys looked at"
	var short []string
	for _, name := range slices.Sorted(maps.Keys(s.look.nodes)) {
		if s.look.nodes[name].partial {
			short = append(short, name)
		}
	}
	switch {
	case len(short) > 0:
		return "CUT OFF: " + looked + ", " + strings.Join(short, ", ") +
			" had no time for more: raise --timeout"
	case len(s.look.missing) > 0:
		return "used: exact for the nodes that answer; " + looked
	}
	return "used: exact; " + looked
}

// askedError says how good the rates of keys are.
func (s *topScreen) askedError() string {
	unseen, sampled, seconds := int64(0), int64(1), 0.0
	for _, n := range s.look.nodes {
		unseen += n.asked.Unseen
		sampled = max(sampled, n.asked.Sampled)
		seconds = max(seconds, n.asked.Seconds)
	}
	text := "asked and denied a second: "
	switch {
	case sampled > 1:
		text += fmt.Sprintf("estimates, 1 in %d checks is counted", sampled)
	case unseen > 0:
		text += "a lower bound"
	default:
		text += "exact"
	}
	if unseen > 0 {
		text += fmt.Sprintf("; keys with at most %s checks in %.0f s may be missing",
			thousands(unseen), seconds)
	}
	if s.look.unasked > 0 {
		text += "; without " + some(s.look.unasked, "agent")
	}
	return text
}
