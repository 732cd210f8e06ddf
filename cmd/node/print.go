package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// output is how a verb that reads prints what it read.
type output struct {
	Output string `short:"o" default:"text" enum:"text,json" help:"text or json."`
}

// print writes v as JSON, or calls text.
func (o output) print(w io.Writer, v any, text func(io.Writer) error) error {
	if o.Output == "json" {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	return text(w)
}

// columns writes rows as a table with columns as wide as they must be.
func columns(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// inLines breaks a text between words into lines of at most width columns, those after the first
// one behind so many spaces. A word that is wider has a line of its own.
func inLines(text string, width, indent int) string {
	var lines []string
	line, after := "", strings.Repeat(" ", indent)
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), after+word
		default:
			line += " " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// brief writes a duration with three digits: 123µs, 4.56ms, 7.89s.
func brief(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return fmt.Sprintf("%.3gµs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.3gms", float64(d)/1e6)
	case d < time.Minute:
		return fmt.Sprintf("%.3gs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// isTerminal reports whether somebody can see w being redrawn.
func isTerminal(w io.Writer) bool { return onTerminal(w) && os.Getenv("TERM") != "dumb" }

// onTerminal reports whether w is shown to somebody, line by line at least.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // a character device, too
	return err != nil || !os.SameFile(info, null)
}
