package contest

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// lines writes the report's first table as an SVG with a line for each contestant, both scales of
// powers of ten. Points that are no numbers above 0 are left out.
func (r *Report) lines(w io.Writer) error {
	const left, right, top, bottom = 80.0, 520.0, 40.0, 340.0
	t := r.Tables[0]
	type spot struct{ x, y float64 }
	found := map[string][]spot{}
	lowX, highX, lowY, highY := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	contestants := r.Samples.names(func(j Job) string { return j.Contestant })
	for _, c := range contestants {
		for _, point := range r.points(t.Figure) {
			x, err := strconv.ParseFloat(point, 64)
			y := r.Samples.Median(Job{c, point}, t.Figure)
			if err != nil || x <= 0 || !(y > 0) {
				continue
			}
			s := spot{math.Log10(x), math.Log10(y)}
			found[c] = append(found[c], s)
			lowX, highX, lowY, highY = min(lowX, s.x), max(highX, s.x), min(lowY, s.y), max(highY,
				s.y)
		}
	}
	lowX, highX = math.Floor(lowX+1e-9), max(math.Ceil(highX-1e-9), math.Floor(lowX+1e-9)+1)
	lowY, highY = math.Floor(lowY+1e-9), max(math.Ceil(highY-1e-9), math.Floor(lowY+1e-9)+1)
	atX := func(x float64) float64 { return left + (x-lowX)/(highX-lowX)*(right-left) }
	atY := func(y float64) float64 { return bottom - (y-lowY)/(highY-lowY)*(bottom-top) }
	var b strings.Builder
	for x := lowX; x <= highX; x++ {
		fmt.Fprintf(&b, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#ddd\"/><text x=\"%.1f\" "+
			"y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
			atX(x), top, bottom, atX(x), bottom+18, power(x))
	}
	for y := lowY; y <= highY; y++ {
		fmt.Fprintf(&b, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/><text x=\"%.1f\" "+
			"y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			left, atY(y), right, left-8, atY(y)+4, power(y))
	}
	for i, c := range contestants {
		var line []string
		hue := hues[i%len(hues)]
		for _, s := range found[c] {
			line = append(line, fmt.Sprintf("%.1f,%.1f", atX(s.x), atY(s.y)))
			fmt.Fprintf(&b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", atX(s.x),
				atY(s.y), hue)
		}
		if len(line) == 0 {
			continue
		}
		fmt.Fprintf(&b,
			"<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n",
			strings.Join(line, " "), hue)
		y := top + 12 + 18*float64(i)
		fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"4\" "+
			"fill=\"%s\"/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			right+16, y-6, hue, right+36, y, escape(c))
	}
	_, err := fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" "+
		"height=\"390\" font-family=\"sans-serif\" font-size=\"12\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"8\" y=\"20\" "+
		"font-size=\"14\">%s: %s</text>\n%s"+
		"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n</svg>\n",
		escape(r.Title), escape(lower(t.Title)), b.String(), (left+right)/2, bottom+38,
		escape(r.Axis))
	return err
}

// power writes ten to the x.
func power(x float64) string {
	if x < 0 || x > 6 {
		return fmt.Sprintf("1e%.0f", x)
	}
	return strconv.FormatFloat(math.Pow(10, x), 'f', 0, 64)
}

// lower writes a title as it stands within a line: "CPU of a decision" keeps its first letter.
func lower(title string) string {
	if len(title) > 1 && title[1] >= 'a' && title[1] <= 'z' {
		return strings.ToLower(title[:1]) + title[1:]
	}
	return title
}
