package policy

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fault is one thing that is wrong in a file.
type Fault struct {
	File         string
	Line, Column int    // from 1; columns count characters
	Field        string // "per"; empty if no field is at fault
	Reason       string // what is wrong, what is accepted

	source string // the line
	more   int    // faults that are not shown after this one
}

// Error is the place, the reason, and the line with a mark below the place.
func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", f.File, f.Line, f.Column)
	if f.Field != "" {
		fmt.Fprintf(&b, "%s: ", f.Field)
	}
	b.WriteString(f.Reason)
	text, mark := excerpt(f.source, f.Column)
	fmt.Fprintf(&b, "\n%5d | %s\n      | %s^", f.Line, text, mark)
	if f.more > 0 {
		fmt.Fprintf(&b, "\nand %d more", f.more)
	}
	return b.String()
}

// Faults are all that is wrong, file by file; there is at least one. Beyond the twentieth they are
// counted only.
type Faults []*Fault

func (fs Faults) Error() string {
	texts := make([]string, len(fs))
	for i, f := range fs {
		texts[i] = f.Error()
	}
	return strings.Join(texts, "\n")
}

// excerpt is the part of a line around a column, fit for a terminal, and the blanks up to that
// column.
func excerpt(line string, column int) (text, mark string) {
	const before, after = 60, 40
	runes := []rune(line)
	at := min(max(column-1, 0), len(runes))
	from, to := max(0, at-before), min(len(runes), at+after)
	clean := func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}
	blank := func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}
	text = strings.TrimRight(strings.Map(clean, string(runes[from:to])), " \t")
	return text, strings.Map(blank, string(runes[from:at]))
}
