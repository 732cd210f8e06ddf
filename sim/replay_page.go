package sim

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

// ReplayCount is what became of the requests of a log in one step of time.
type ReplayCount struct {
	Allowed, Delayed, Denied int64 // a request is in one of them
}

// Plus is the sum of two steps.
func (c ReplayCount) Plus(d ReplayCount) ReplayCount {
	return ReplayCount{c.Allowed + d.Allowed, c.Delayed + d.Delayed, c.Denied + d.Denied}
}

// ReplayPage is what limits would have done with a log, for people.
type ReplayPage struct {
	Title, About string
	From         time.Time // when the first step begins
	Step         time.Duration
	Counts       []ReplayCount
	Tables       [][][]string // each with its heads in the first row
}

//go:embed replay.html
var replayText string

var replayTemplate = template.Must(template.New("replay").Funcs(template.FuncMap{
	"picture": func(p ReplayPage) template.HTML { return template.HTML(p.svg()) },
	"keys":    func(rows [][]string) bool { return rows[0][len(rows[0])-1] == "KEY" },
	"time":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") },
	"last": func(p ReplayPage) time.Time {
		return p.From.Add(p.Step * time.Duration(len(p.Counts)))
	},
}).Parse(replayText))

// WriteHTML writes p as one page that needs nothing else: no script, no network.
func (p ReplayPage) WriteHTML(w io.Writer) error { return replayTemplate.Execute(w, p) }

// svg draws the requests by the time of the log.
func (p ReplayPage) svg() string {
	second := p.Step.Seconds()
	rate := func(of func(c ReplayCount) int64) []float64 {
		values := make([]float64, len(p.Counts))
		for i, c := range p.Counts {
			values[i] = float64(of(c)) / second
		}
		return values
	}
	denied := rate(func(c ReplayCount) int64 { return c.Denied })
	delayed := rate(func(c ReplayCount) int64 { return c.Delayed })
	panels := []panel{{title: "requests a second", height: 220, lines: []plotLine{
		{"asked", "asked", true, rate(func(c ReplayCount) int64 {
			return c.Allowed + c.Delayed + c.Denied
		})},
		{"allowed", "admitted", false, rate(func(c ReplayCount) int64 {
			return c.Allowed + c.Delayed
		})},
	}}, {
		title: "denied a second", height: 110,
		lines: []plotLine{{"denied", "extra", true, denied}},
	}, {
		title: "delayed a second", height: 110,
		lines: []plotLine{{"delayed", "degraded", true, delayed}},
	}}
	pic := &picture{end: millis(p.Step) * float64(len(p.Counts))}
	y := 8.0
	for i := range panels {
		if i < 2 || anyAbove(panels[i].lines[0].values) {
			y = pic.panel(&panels[i], y)
		}
	}
	y = pic.timeAxis(y)
	var b strings.Builder
	fmt.Fprintf(&b, svgHead, pictureWidth, y+8, fontSize, "requests of the log by time",
		pictureStyle)
	b.WriteString(pic.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// anyAbove reports whether a value is above 0.
func anyAbove(values []float64) bool {
	for _, v := range values {
		if v > 0 {
			return true
		}
	}
	return false
}
