package contest

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Plot writes the report's first table as an SVG: as lines if its points are numbers, else as bars.
func (r *Report) Plot(w io.Writer) error {
	if r.Axis != "" {
		return r.lines(w)
	}
	return r.bars(w)
}

// bars gives each point a scale of its own, on which its longest bar is the full width, for they
// may differ by powers of ten.
func (r *Report) bars(w io.Writer) error {
	const line, left, width, right = 18, 190, 420, 190
	var b strings.Builder
	y := 30
	t := r.Tables[0]
	contestants := r.Samples.names(func(j Job) string { return j.Contestant })
	for _, point := range r.points(t.Figure) {
		var most float64
		for _, c := range contestants {
			if x := r.Samples.Median(Job{c, point}, t.Figure); !math.IsNaN(x) {
				most = max(most, x)
			}
		}
		fmt.Fprintf(&b, "<text x=\"8\" y=\"%d\" font-weight=\"bold\">%s</text>\n", y+line,
			escape(point))
		y += line
		for i, c := range contestants {
			x := r.Samples.Median(Job{c, point}, t.Figure)
			if math.IsNaN(x) {
				continue
			}
			y += line
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", left-8, y,
				escape(c))
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>",
				left, y-line+6, x/most*width, line-4, hues[i%len(hues)])
			fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", left+x/most*width+6, y,
				escape(r.cell(t, Job{c, point})))
		}
		y += line / 2
	}
	_, err := fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "+
		"height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"8\" y=\"20\" "+
		"font-size=\"14\">%s: %s</text>\n%s</svg>\n",
		left+width+right, y+line, escape(r.Title), escape(lower(t.Title)), b.String())
	return err
}

var hues = []string{"#2266aa", "#cc7733", "#889988", "#aa4455", "#55aa77", "#886699", "#ccaa33"}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
