package sim

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// box is the room that something in a picture takes.
type box struct {
	what                     string
	left, top, right, bottom float64
}

func (a box) meets(b box) bool {
	return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
}

// look reads a picture back: the boxes of its labels and discs, all of its points, and the size of
// the whole.
func look(t *testing.T, svg string) (labels []box, points [][2]float64, whole box) {
	t.Helper()
	number := func(text string) float64 {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%q is not a number", text)
		}
		return x
	}
	d := xml.NewDecoder(strings.NewReader(svg))
	var at map[string]string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return labels, points, whole
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			at = map[string]string{"": e.Name.Local}
			for _, a := range e.Attr {
				at[a.Name.Local] = a.Value
			}
			switch e.Name.Local {
			case "svg":
				size := strings.Fields(at["viewBox"])
				whole = box{"the picture", 0, 0, number(size[2]), number(size[3])}
			case "circle":
				x, y, r := number(at["cx"]), number(at["cy"]), number(at["r"])
				labels = append(labels, box{
					fmt.Sprintf("disc at %v %v", x, y), x - r, y - r, x + r,
					y + r,
				})
			case "polyline", "polygon":
				for pair := range strings.FieldsSeq(at["points"]) {
					x, y, _ := strings.Cut(pair, ",")
					points = append(points, [2]float64{number(x), number(y)})
				}
			case "line":
				points = append(points, [2]float64{number(at["x1"]), number(at["y1"])},
					[2]float64{number(at["x2"]), number(at["y2"])})
			}
		case xml.CharData:
			if at[""] != "text" || at["class"] == "sign" { // signs lie on their discs
				continue
			}
			size, width := float64(fontSize), charWidth*float64(utf8.RuneCount(e))
			if at["font-size"] != "" {
				size = number(at["font-size"])
				width *= size / fontSize
			}
			x, y := number(at["x"]), number(at["y"])
			switch at["text-anchor"] {
			case "end":
				x -= width
			case "middle":
				x -= width / 2
			}
			labels = append(labels, box{string(e), x, y - 0.8*size, x + width, y + 0.2*size})
			at = map[string]string{}
		case xml.EndElement:
			at = map[string]string{}
		}
	}
}

// Nothing in a picture lies outside of it, and no label on another: not with many limits and long
// names, not with events that crowd.
func TestPicturesAreReadable(t *testing.T) {
	t.Parallel()
	reports := map[string]*ScenarioReport{
		"one key": parsed(t, plain).Run(),
		"crowded": parsed(t, `
name: a name that is much longer than anybody would give to a scenario, and then some
nodes: 9
duration: 100s
limits:
  - {name: a-limit-with-a-name-that-is-longer-than-it-should-be, algorithm: gcra, limit: 10,
     per: 1s}
  - {name: b, algorithm: fixed_window, limit: 1000000, per: 1s}
traffic:
  - {limits: [a-limit-with-a-name-that-is-longer-than-it-should-be, b], rate: 2/s, until: 50s}
faults:
  - {at: 10s, freeze: n1..n9, for: 1s}
  - {at: 12s, crash: n1..n7}
  - {at: 12500ms, cut: n8 > n9}
  - {at: 12500ms, start: n1..n7}
  - {at: 13s, heal: all}
  - {at: 50s, clock_step: all, by: -3h}
  - {at: 100s, crash: n9}
`).Run(),
	}
	for _, path := range shipped(t) {
		if !testing.Short() {
			reports[path] = readScenario(t, path).Run()
		}
	}
	for name, r := range reports {
		var svg strings.Builder
		if err := r.WriteSVG(&svg); err != nil {
			t.Fatal(err)
		}
		labels, points, whole := look(t, svg.String())
		if len(labels) < 20 || len(points) < 100 {
			t.Errorf("%s: %d labels, %d points: is that a picture?", name, len(labels), len(points))
		}
		for i, a := range labels {
			if a.left < whole.left || a.top < whole.top || a.right > whole.right ||
				a.bottom > whole.bottom {
				t.Errorf("%s: %+v lies outside", name, a)
			}
			for _, b := range labels[:i] {
				if a.meets(b) {
					t.Errorf("%s: %+v lies on %+v", name, a, b)
				}
			}
		}
		for _, p := range points {
			if p[0] < whole.left || p[0] > whole.right || p[1] < whole.top || p[1] > whole.bottom {
				t.Errorf("%s: a point at %v lies outside", name, p)
			}
		}
	}
}

// The page needs nothing else, escapes what people wrote, and shows the picture.
func TestPage(t *testing.T) {
	r := parsed(t, plain+"name: <script>alert(1)</script> & more\nabout: a <b> c\n").Run()
	var page strings.Builder
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "http://", "https://", "<b>"} {
		if text := strings.ReplaceAll(page.String(), `xmlns="http://www.w3.org/2000/svg"`,
			""); strings.Contains(text, bad) {
			t.Errorf("the page has %q in it", bad)
		}
	}
	for _, want := range []string{"&lt;script&gt;", "<svg ", "Every promise held", "<td>api<td>"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	r.Failure = &Failure{Promise: "exact", Says: "x < y", Events: []string{"a < b"}}
	page.Reset()
	if err := r.WriteHTML(&page); err != nil ||
		!strings.Contains(page.String(), "A promise was broken") ||
		!strings.Contains(page.String(), "a &lt; b") {
		t.Errorf("a broken promise is not shown: %v", err)
	}
}

func TestTimeAxisHasRoundSteps(t *testing.T) {
	r := parsed(t, plain).Run()
	for end, wants := range map[float64][]string{
		float64(len(r.Ticks)) * r.StepMS: {">0<", ">1s<", ">10s<"},
		100 * 60e3:                       {">0<", ">10m<", ">90m<", ">100m<"},
		30 * 86400e3:                     {">0<", ">3d<", ">30d<"},
	} {
		p := &picture{end: end}
		p.timeAxis(0)
		for _, want := range wants {
			if !strings.Contains(p.String(), want) {
				t.Errorf("no %s in %s", want, p.String())
			}
		}
	}
}
