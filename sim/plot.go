package sim

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Sizes of a picture, in pixels. Everything in it is placed by them, and a test looks whether
// labels meet.
const (
	pictureWidth = 900
	plotLeft     = 64  // where the time axis begins
	plotRight    = 884 // and ends
	fontSize     = 12
	charWidth    = 7.4 // of the widest usual font, on average
	rowHeight    = 18  // of a line of text
)

// panel is one plot of a picture. All panels have the same time axis.
type panel struct {
	title  string
	height float64
	log    bool // the value axis counts powers of ten
	lines  []plotLine
}

// plotLine is one series of a panel: a value per tick, NaN where there is none.
type plotLine struct {
	name, class string
	area        bool // filled down to the axis
	values      []float64
}

// picture is an SVG image while it is drawn.
type picture struct {
	strings.Builder
	end   float64 // of the time axis, in ms
	marks []MarkReport
}

// WriteSVG draws what happened over time: what each limit admitted beside what a single one would
// have, what was too much, how long clients waited, and what went over the lines. Events are marked
// on the time axis. The image needs nothing else: no script, no font, no network.
func (r *ScenarioReport) WriteSVG(w io.Writer) error {
	p := &picture{end: float64(len(r.Ticks)) * r.StepMS, marks: r.Marks[1:]}
	y := p.header(r)
	top := y
	panels := r.panels()
	var axes strings.Builder
	// the bands of events go behind everything, and need to know how far down it goes
	axes, p.Builder = p.Builder, axes
	for i := range panels {
		y = p.panel(&panels[i], y)
	}
	y = p.timeAxis(y)
	body := p.String()
	p.Reset()
	p.events(top, y-rowHeight)
	_, err := fmt.Fprintf(w, svgHead+"%s%s%s</svg>\n", pictureWidth, y+8, fontSize,
		html.EscapeString(r.Name), pictureStyle, p.String(), axes.String(), body)
	return err
}

// svgHead opens a picture: it has its width and height, the size of its letters, its name, and its
// style.
const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" ` +
	`font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="%d" role="img" ` +
	`aria-label="%s">
<style>%s</style>
<rect class="page" width="100%%" height="100%%"/>
`

const pictureStyle = "\n" +
	`.page{fill:#fff}text{fill:#24292f;stroke:#fff;stroke-width:4px;paint-order:stroke}` +
	`.dim{fill:#6e7781}.title{font-weight:600}` + "\n" +
	`.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#8c959f}` + "\n" +
	`polyline{fill:none;stroke-width:1.6;stroke-linejoin:round}` + "\n" +
	`.asked{stroke:#b6bec7;fill:#b6bec7}` +
	`.ideal{stroke:#57606a;fill:#57606a;stroke-dasharray:4 3}` +
	`.admitted{stroke:#0969da;fill:#0969da}` + "\n" +
	`.degraded{stroke:#bf8700;fill:#bf8700}.extra{stroke:#cf222e;fill:#cf222e}` +
	`.p50{stroke:#1a7f37;fill:#1a7f37}.p99{stroke:#8250df;fill:#8250df}` + "\n" +
	`.messages{stroke:#0969da;fill:#0969da}.bytes{stroke:#8250df;fill:#8250df}` + "\n" +
	`polygon{fill-opacity:.28;stroke:none}` +
	`polyline.asked,polyline.ideal,polyline.admitted,polyline.degraded,polyline.extra,` +
	`polyline.p50,polyline.p99,polyline.messages,polyline.bytes{fill:none}` + "\n" +
	`polygon.asked{stroke:none}polygon.degraded{stroke:none;fill-opacity:.45}` +
	`polygon.extra{stroke:none}` + "\n" +
	`.event{stroke:#cf222e;stroke-dasharray:2 3}.span{fill:#cf222e;fill-opacity:.08}` +
	`.badge{fill:#cf222e}.sign{fill:#fff;stroke:none;font-weight:600;font-size:11px}` + "\n" +
	`@media (prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3;stroke:#0d1117}` +
	`.dim{fill:#9198a1}.grid{stroke:#2a3038}.axis{stroke:#656c76}` + "\n" +
	`.asked{stroke:#4a525c;fill:#4a525c}.ideal{stroke:#b1bac4;fill:#b1bac4}` +
	`.admitted,.messages{stroke:#58a6ff;fill:#58a6ff}.sign{fill:#fff;stroke:none}}` + "\n"

// panels are the plots of a report.
func (r *ScenarioReport) panels() (all []panel) {
	n, second := len(r.Ticks), r.StepMS/1000
	values := func(of func(i int) float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = of(i)
		}
		return v
	}
	tooMuch := make([]float64, n)
	for _, l := range r.Limits {
		rate := func(of func(t *LimitTick) int64) []float64 {
			return values(func(i int) float64 { return float64(of(&l.Ticks[i])) / second })
		}
		all = append(all, panel{
			title: clip(l.Limit, 30) + ", units per second", height: 150,
			lines: []plotLine{
				{"asked", "asked", true, rate(func(t *LimitTick) int64 { return t.Asked })},
				{"without the owner", "degraded", true, rate(func(t *LimitTick) int64 {
					return t.Degraded
				})},
				{"one limiter", "ideal", false, rate(func(t *LimitTick) int64 { return t.Ideal })},
				{"admitted", "admitted", false, rate(func(t *LimitTick) int64 {
					return t.Admitted
				})},
			},
		})
		sum := 0.0
		for i := range l.Ticks {
			sum += float64(l.Ticks[i].Extra)
			tooMuch[i] += sum
		}
	}
	return append(all, r.costs(tooMuch, values)...)
}

// costs are the plots of what was admitted beyond the limits, and of what answers cost.
func (r *ScenarioReport) costs(tooMuch []float64,
	values func(func(int) float64) []float64,
) []panel {
	wait := func(of func(t *Tick) float64) []float64 {
		return values(func(i int) float64 {
			if r.Ticks[i].Answers == 0 {
				return math.NaN()
			}
			return of(&r.Ticks[i])
		})
	}
	return []panel{
		{
			title: "admitted beyond the limits so far, units", height: 70,
			lines: []plotLine{{"extra", "extra", true, tooMuch}},
		},
		{title: "clients waited, ms", height: 90, log: true, lines: []plotLine{
			{"p99", "p99", false, wait(func(t *Tick) float64 { return t.P99MS })},
			{"p50", "p50", false, wait(func(t *Tick) float64 { return t.P50MS })},
		}},
		{title: "messages between nodes per answer", height: 60, lines: []plotLine{
			{"messages", "messages", false, wait(func(t *Tick) float64 {
				return per(t.Messages, t.Answers)
			})},
		}},
		{title: "bytes between nodes per answer", height: 60, lines: []plotLine{
			{"bytes", "bytes", false, wait(func(t *Tick) float64 {
				return per(t.Bytes, t.Answers)
			})},
		}},
	}
}

// x is where an instant lies.
func (p *picture) x(ms float64) float64 {
	return plotLeft + (plotRight-plotLeft)*min(1, max(0, ms/p.end))
}

func (p *picture) text(x, y float64, class, anchor, text string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f"`, x, y)
	if class != "" {
		fmt.Fprintf(p, ` class="%s"`, class)
	}
	if anchor != "" {
		fmt.Fprintf(p, ` text-anchor="%s"`, anchor)
	}
	fmt.Fprintf(p, ">%s</text>\n", html.EscapeString(text))
}

// header writes what the picture is about, and the list of events. It returns where the rest may
// begin.
func (p *picture) header(r *ScenarioReport) (y float64) {
	y = 26
	fmt.Fprintf(p, `<text x="16" y="%.1f" class="title" font-size="16">%s</text>`+"\n", y,
		html.EscapeString(clip(r.Name, 60)))
	p.text(plotRight, y, "dim", "end", fmt.Sprintf("%d nodes, %s, seed %d", len(r.World.Clocks),
		spanText(r.World.LengthMS), r.Seed))
	y += 8
	const columns = 2
	for i, m := range p.marks {
		if i%columns == 0 {
			y += rowHeight
		}
		x := 16 + float64(i%columns)*(pictureWidth-16)/columns
		p.badge(x+8, y-4, i+1)
		cost := ""
		if m.Extra > 0 {
			cost = fmt.Sprintf(": %d extra", m.Extra)
		}
		p.text(x+22, y, "", "", clip(fmt.Sprintf("%s  %s%s", spanText(m.AtMS), m.What, cost),
			int(math.Floor((pictureWidth/columns-40)/charWidth))))
	}
	if len(p.marks) > 0 {
		y += 6
		rows := 0
		for _, row := range p.rows() {
			rows = max(rows, row+1)
		}
		y += float64(rows) * rowHeight
	}
	return y + 4
}

// badge is the sign of an event in a disc.
func (p *picture) badge(x, y float64, i int) {
	fmt.Fprintf(p, `<circle class="badge" cx="%.1f" cy="%.1f" r="7.5"/>`, x, y)
	fmt.Fprintf(p, `<text class="sign" x="%.1f" y="%.1f" text-anchor="middle">%c</text>`+"\n",
		x, y+4, sign(i))
}

// rows says in which of several rows above the plots each event's sign finds room.
func (p *picture) rows() []int {
	const room = 18
	rows, last := make([]int, len(p.marks)), []float64{}
	for i, m := range p.marks {
		x := p.x(m.AtMS)
		row := 0
		for row < len(last) && x-last[row] < room {
			row++
		}
		if row == len(last) {
			last = append(last, 0)
		}
		rows[i], last[row] = row, x
	}
	return rows
}

// events draws a line from the sign of each event down through all plots.
func (p *picture) events(top, bottom float64) {
	rows := p.rows()
	for i, m := range p.marks {
		x := p.x(m.AtMS)
		y := top - 12 - float64(rows[i])*rowHeight
		if m.UntilMS > m.AtMS {
			fmt.Fprintf(p, `<rect class="span" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n",
				x, y, p.x(m.UntilMS)-x, bottom-y)
		}
		fmt.Fprintf(p, `<line class="event" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x, y,
			x, bottom)
		p.badge(x, y, i+1)
	}
}

// panel draws one plot from y on, and returns where the next may begin.
func (p *picture) panel(plot *panel, y float64) float64 {
	y += rowHeight + 4
	p.text(plotLeft, y-6, "title", "", plot.title)
	if len(plot.lines) > 1 {
		x := float64(plotRight)
		for i := len(plot.lines) - 1; i >= 0; i-- {
			l := &plot.lines[i]
			x -= charWidth * float64(utf8.RuneCountInString(l.name))
			p.text(x, y-6, "dim", "", l.name)
			x -= 20
			if l.area {
				fmt.Fprintf(p, `<polygon class="%s" `+
					`points="%.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f"/>`+"\n",
					l.class, x, y-15, x+14, y-15, x+14, y-6, x, y-6)
			} else {
				fmt.Fprintf(p, `<polyline class="%s" points="%.1f,%.1f %.1f,%.1f"/>`+"\n", l.class,
					x, y-10, x+14, y-10)
			}
			x -= 12
		}
	}
	low, high, ticks := plot.scale()
	at := func(v float64) float64 {
		if plot.log {
			v, low, high := math.Log10(max(v, low)), math.Log10(low), math.Log10(high)
			return y + plot.height*(1-(v-low)/(high-low))
		}
		return y + plot.height*(1-v/high)
	}
	for _, v := range ticks {
		fmt.Fprintf(p, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`+"\n", plotLeft,
			at(v), plotRight, at(v))
		p.text(plotLeft-8, at(v)+4, "dim", "end", brief(v))
	}
	for i := range plot.lines {
		p.line(&plot.lines[i], y+plot.height, at)
	}
	return y + plot.height + 10
}

// line draws a series: a point in the middle of each tick.
func (p *picture) line(l *plotLine, floor float64, at func(float64) float64) {
	n := len(l.values)
	var points []string
	first, last := 0.0, 0.0
	flush := func() {
		switch {
		case len(points) == 0:
		case l.area:
			fmt.Fprintf(p, `<polygon class="%s" points="%.1f,%.1f %s %.1f,%.1f"/>`+"\n", l.class,
				first, floor, strings.Join(points, " "), last, floor)
		case len(points) == 1:
			fmt.Fprintf(p, `<polyline class="%s" points="%s %s"/>`+"\n", l.class, points[0],
				points[0])
		default:
			fmt.Fprintf(p, `<polyline class="%s" points="%s"/>`+"\n", l.class,
				strings.Join(points, " "))
		}
		points = points[:0]
	}
	for i, v := range l.values {
		if math.IsNaN(v) {
			flush()
			continue
		}
		x := p.x(p.end * (float64(i) + 0.5) / float64(n))
		if len(points) == 0 {
			first = x
		}
		last = x
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, at(v)))
	}
	flush()
}
