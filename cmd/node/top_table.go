package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// topColumn is a column of the table. Those that come first in topColumns are left out last.
type topColumn struct {
	name  string
	right bool // numbers
	most  int  // characters
	cell  func(*topLine) string
}

// topColumns are in the order of the screen, except that the key comes last and takes the rest.
var topColumns = []topColumn{
	{"USED", true, 19, func(l *topLine) string { return known(l, thousands(l.used)) }},
	{"OF", true, 19, func(l *topLine) string { return known(l, thousands(l.most)) }},
	{"ASKED/S", true, 9, func(l *topLine) string { return perSecond(l.asked) }},
	{"DENIED/S", true, 9, func(l *topLine) string { return perSecond(l.denied) }},
	{"FULL IN", true, 9, func(l *topLine) string { return known(l, roughly(l.resetAfter)) }},
	{"LIMIT", false, 16, func(l *topLine) string { return shown(l.limit) }},
	{"OWNER", false, 10, func(l *topLine) string { return known(l, l.owner) }},
}

// dropped are the columns that a narrow terminal leaves out, by their places, in this order.
var dropped = []int{6, 1, 4, 5, 2}

const (
	columnGap = 2
	leastKey  = 14 // characters of a key for which columns are left out
)

// known is text, or a mark if the state of the key was not told: it is not among those that have
// used most.
func known(l *topLine, text string) string {
	if l.owner == "" {
		return "–"
	}
	return text
}

// table is the keys that there is room for.
func (s *topScreen) table(width int) []painted {
	shownLines := s.list[s.first:min(len(s.list), s.first+s.page)]
	cells := make([][]string, len(topColumns))
	widths := make([]int, len(topColumns))
	for i, c := range topColumns {
		cells[i] = []string{c.name}
		for k := range shownLines {
			cells[i] = append(cells[i], cut(c.cell(&shownLines[k]), c.most))
		}
		for _, text := range cells[i] {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	left := map[int]bool{}
	for _, i := range dropped {
		if room := width - tableWidth(widths, left); room >= leastKey {
			break
		}
		left[i] = true
	}
	rows := make([]painted, 0, 1+len(shownLines))
	for k := range 1 + len(shownLines) {
		row := painted{s.row(cells, widths, left, k), bold}
		if k > 0 {
			row.colour = lineColour(&shownLines[k-1])
		}
		rows = append(rows, row)
	}
	return rows
}

// tableWidth is how wide the columns are without the key and those that are left out.
func tableWidth(widths []int, left map[int]bool) (n int) {
	for i, w := range widths {
		if !left[i] {
			n += w + columnGap
		}
	}
	return n
}

// row is row k of the table; 0 has the names of the columns.
func (s *topScreen) row(cells [][]string, widths []int, left map[int]bool, k int) string {
	var b strings.Builder
	for i, c := range topColumns {
		if left[i] {
			continue
		}
		text := cells[i][k]
		blank := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
		if c.right {
			text = blank + text
		} else {
			text += blank
		}
		b.WriteString(text + strings.Repeat(" ", columnGap))
	}
	if k == 0 {
		return b.String() + "KEY"
	}
	return b.String() + shown(s.list[s.first+k-1].key)
}

// lineColour is red while a key is denied, and yellow when it has nothing left.
func lineColour(l *topLine) string {
	switch {
	case l.denied > 0:
		return red
	case l.owner != "" && l.used >= l.most:
		return yellow
	}
	return ""
}

// roughly writes milliseconds so that they fit a column: 0.4s, 12.3s, 5m10s, 30h0m.
func roughly(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case ms < 0:
		return "never"
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
}
