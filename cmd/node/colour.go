package main

import (
	"io"
	"os"
	"strings"
)

// Colours of a terminal. None of them says anything that the words beside it do not say.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

// coloured reports whether w is a terminal, and NO_COLOR (https://no-color.org) does not ask for
// plain text.
func coloured(w io.Writer) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }

// paint puts text in a colour; "" leaves it as it is.
func paint(colour, text string) string {
	if colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// paintCells colours the cells of a table that columns has laid out: by row and column, from 0.
func paintCells(table string, rows [][]string, colourOf func(row, column int) string) string {
	var b strings.Builder
	lines := strings.SplitAfter(table, "\n")
	for i, line := range lines {
		for j := 0; i < len(rows) && j < len(rows[i]); j++ {
			before, after, found := strings.Cut(line, rows[i][j])
			if !found {
				break
			}
			b.WriteString(before + paint(colourOf(i, j), rows[i][j]))
			line = after
		}
		b.WriteString(line)
	}
	return b.String()
}

// colouredColumns is columns, with colours where w shows some.
func colouredColumns(w io.Writer, rows [][]string, colourOf func(row, column int) string) error {
	if !coloured(w) {
		return columns(w, rows)
	}
	var table strings.Builder
	if err := columns(&table, rows); err != nil {
		return err
	}
	_, err := io.WriteString(w, paintCells(table.String(), rows, colourOf))
	return err
}

// stateColour is the colour of a member's state.
func stateColour(state string) string {
	switch state {
	case "active":
		return green
	case "failed":
		return red
	}
	return yellow
}
