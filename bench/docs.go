package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"penstock/bench/contest"
)

// docs puts the figures of a run where a page has room for them, between a line that begins and one
// that ends it:
//
//	<!-- bench: aims -->          the aims of all rows, and how quiet the machine was
//	<!-- bench: ROW -->           the row's figures; its plot is performance-ROW.svg beside it
//	<!-- bench: end -->
//
// A row that was not measured keeps what stands there.
func docs(args []string, out io.Writer) error {
	f := flag.NewFlagSet("docs", flag.ContinueOnError)
	f.SetOutput(out)
	from := f.String("from", "results", "directory with ROW.json of each row, as -o leaves it")
	page := f.String("page", "../docs/performance.md", "where the figures go")
	if err := f.Parse(args); err != nil {
		return err
	}
	var reports []*contest.Report
	for _, name := range names() {
		r, err := read(filepath.Join(*from, name+".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	if len(reports) == 0 {
		return fmt.Errorf("%s: no row was measured; go run . -o %s", *from, *from)
	}
	old, err := os.ReadFile(*page)
	if err != nil {
		return err
	}
	text, shown, err := fill(string(old), reports)
	if err != nil {
		return fmt.Errorf("%s: %w", *page, err)
	}
	for _, r := range shown {
		if err := create(
			filepath.Join(filepath.Dir(*page), "performance-"+r.Name+".svg"), r.Plot,
		); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%s: %d rows\n", *page, len(shown))
	return os.WriteFile(*page, []byte(text), 0o644)
}

const (
	openMark  = "<!-- bench: "
	closeMark = " -->"
	endMark   = openMark + "end" + closeMark
)

// fill replaces what stands between marks, and returns the reports of the rows that it shows.
func fill(
	page string, reports []*contest.Report,
) (text string, shown []*contest.Report, err error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(page, openMark)
		b.WriteString(before)
		if !found {
			return b.String(), shown, nil
		}
		name, rest, _ := strings.Cut(after, closeMark)
		old, rest, ended := strings.Cut(rest, endMark)
		if !ended || strings.Contains(old, openMark) {
			return "", nil, fmt.Errorf("%s%s%s has no %s", openMark, name, closeMark, endMark)
		}
		page = rest
		if name == "aims" {
			old = aims(reports)
		} else if i := slices.IndexFunc(reports, func(r *contest.Report) bool {
			return r.Name == name
		}); i >= 0 {
			old = figures(reports[i])
			shown = append(shown, reports[i])
		} else if !slices.Contains(names(), name) {
			return "", nil, fmt.Errorf("%s%s%s: there is no such row", openMark, name, closeMark)
		}
		b.WriteString(openMark + name + closeMark + old + endMark)
	}
}

// aims are those of all reports, and under which conditions they were made.
func aims(reports []*contest.Report) string {
	var b strings.Builder
	_ = contest.Judge(&b, reports...) // a Builder takes everything
	_, table, _ := strings.Cut(b.String(), "## Aims\n")
	return fmt.Sprintf("\n%s, %d rounds. %s\n%s", reports[0].Machine, reports[0].Rounds,
		contest.Quiet(reports...), table)
}

func figures(r *contest.Report) string {
	var b strings.Builder
	_ = r.Brief(&b)
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	return fmt.Sprintf("\n`%s`, %s. %s\n\n%s\n![%s](performance-%s.svg)\n",
		r.Command, r.Machine.Date.Format("2006-01-02 15:04 MST"), contest.Quiet(r), b.String(),
		r.Title, r.Name)
}
