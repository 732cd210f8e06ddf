package contest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// imagined are three rounds of a machine that becomes slower: b is always twice a, c exists at one
// point only.
func imagined(t *testing.T) Results {
	t.Helper()
	speed := 0.0
	var order []string
	samples, err := Run(3, []Job{{"a", "1"}, {"b", "1"}, {"a", "2"}, {"b", "2"}, {"c", "2"}},
		func(j Job) (map[string]float64, error) {
			order = append(order, j.Contestant+j.Point)
			speed = float64(1 + (len(order)-1)/5) // by round
			return map[string]float64{"ns": speed * map[string]float64{
				"a": 10, "b": 20,
				"c": 5,
			}[j.Contestant], Others: 0.5}, nil
		}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "a1 b1 a2 b2 c2 b1 a2 b2 c2 a1 a2 b2 c2 a1 b1" {
		t.Errorf("the order was %s", got)
	}
	for _, s := range samples {
		if s.Figures[Yardstick] <= 0 {
			t.Errorf("the yardstick took %v ns", s.Figures[Yardstick])
		}
		s.Figures[Yardstick] = 100 + 10*float64(s.Round)
	}
	return samples
}

func TestMedians(t *testing.T) {
	r := imagined(t)
	a, b := Job{"a", "1"}, Job{"b", "1"}
	if m := r.Median(a, "ns"); m != 20 {
		t.Errorf("median %v, want 20", m)
	}
	if ratio := r.Ratio(b, a, "ns"); ratio != 2 {
		t.Errorf("ratio %v, want 2", ratio)
	}
	if spread := r.Spread(a, "ns"); spread != 1 {
		t.Errorf("spread %v, want 1", spread)
	}
	if !math.IsNaN(r.Median(a, "never measured")) ||
		!math.IsNaN(r.Ratio(Job{"c", "2"}, Job{"c", "1"}, "ns")) {
		t.Error("what was not measured has a figure")
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("median of four: %v", m)
	}
}

func TestFailureEndsIt(t *testing.T) {
	_, err := Run(5, []Job{{"a", "1"}}, func(Job) (map[string]float64, error) {
		return nil, errors.New("no memory")
	}, io.Discard)
	if err == nil || err.Error() != "a, 1: no memory" {
		t.Error(err)
	}
}

func TestReport(t *testing.T) {
	r := Report{
		Title: "A contest", Command: "run it", Machine: Machine{Cores: 2}, Rounds: 3,
		Samples: imagined(t), Base: "a", Notes: []string{"Said beside."},
		Tables: []Table{
			{"Cost, ns", "cost", "ns", 0, Less},
			{"Speed", "", "ns", 1, More},
			{"Nobody's", "no", "x", 0, Less},
		},
		Aims: []Aim{
			{
				Work: "twice b", Job: Job{"a", "1"}, Against: []Job{{"b", "1"}}, Figure: "ns",
				Better: Less, Want: 0.5,
			},
			{
				Work: "as cheap as the best", Job: Job{"a", "2"},
				Against: []Job{{"b", "2"}, {"c", "2"}}, Figure: "ns", Better: Less, Want: 1.5,
			},
			{
				Work: "half of the best", Job: Job{"a", "2"},
				Against: []Job{{"b", "2"}, {"c", "2"}},
				Figure:  "ns", Better: More, Want: 2, Saves: true,
			},
			{
				Work: "half", Job: Job{"a", "2"}, Against: []Job{{"b", "2"}},
				Figure: "ns", Better: More, Want: 2, Saves: true,
			},
			{Work: "cheap", Job: Job{"c", "2"}, Figure: "ns", Better: Less, Want: 10, Unit: "ns"},
			{Work: "not measured", Job: Job{"d", "2"}, Figure: "ns", Better: More, Want: 10},
		},
	}
	var md, js, svg, brief bytes.Buffer
	if err := errors.Join(r.Markdown(&md), r.JSON(&js), r.Plot(&svg), r.Brief(&brief)); err != nil {
		t.Fatal(err)
	}
	// At point 2 the longest bar is b's, and a's is half as long.
	for _, want := range []string{
		"A contest: cost, ns", `>c</text>`, `width="420.0"`,
		`width="210.0"`, ">40 (2 ×)<",
	} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, svg.String())
		}
	}
	if err := xml.Unmarshal(svg.Bytes(), new(struct{})); err != nil {
		t.Errorf("the plot is no XML: %v", err)
	}
	for _, want := range []string{
		"## Cost, ns\n\n| | 1 | 2 |\n|---|--:|--:|\n| a | 20 | 20 |\n| b | 40 (2 ×) | 40 (2 ×) " +
			"|\n| c |  | 10 (0.5 ×) |\n",
		"## Speed\n\n| | 1 | 2 |\n|---|--:|--:|\n| a | 20.0 | 20.0 |\n| b | 40.0 (0.5 ×) | 40.0 " +
			"(0.5 ×) |\n",
		"differs by 100 %", "Not a quiet machine", "0.50 cores",
	} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, md.String())
		}
	}
	for _, want := range []string{
		"| twice b | b, 1 | ≤ 0.5 × | 0.5 × | 0.5 – 0.5 | 0.50 cores, 20 % | reached |\n",
		"| as cheap as the best | b or c, 2 | ≤ 1.5 × | 2 × | 2 – 2 | 0.50 cores, 20 % | " +
			"**missed** |\n",
		"| half of the best | b or c, 2 | ≥ 2 × less | 0.5 × less | 0.5 – 0.5 | 0.50 cores, " +
			"20 % | **missed** |\n",
		"| half | b, 2 | ≥ 2 × less | 2 × less | 2 – 2 | 0.50 cores, 20 % | reached |\n",
		"| cheap | itself | ≤ 10 ns | 10 ns | 5 – 15 | 0.50 cores, 20 % | reached |\n",
		"The same work took up to 20 % longer", "\nSaid beside.\n",
		"\n3 of 5 aims are reached.\n",
	} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, md.String())
		}
	}
	if strings.Contains(md.String(), "not measured") {
		t.Error("an aim that was not measured is judged")
	}
	if want := "|  | | cost |\n|---|---|--:|\n| 1 | a | 20 |\n| 1 | b | 40 (2 ×) |\n| 2 | a | 20 " +
		"|\n"; !strings.HasPrefix(brief.String(), want) {
		t.Errorf("in brief:\n%swant\n%s", brief.String(), want)
	}
	if strings.Contains(md.String(), "Nobody's") {
		t.Error("a table without figures is shown")
	}
	var back Report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Samples) != 15 ||
		back.Samples[0].Figures["ns"] != 10 {
		t.Errorf("%v, %+v", err, back)
	}
	var again bytes.Buffer
	if err := back.Markdown(&again); err != nil || again.String() != md.String() {
		t.Errorf("%v; from its JSON the report is another one:\n%s", err, again.String())
	}
}

// TestLines: where points are numbers the plot has a line for each contestant, on scales of powers
// of ten.
func TestLines(t *testing.T) {
	r := Report{Title: "Growth", Axis: "keys", Samples: Results{
		{Job{"a", "1"}, 0, map[string]float64{"ns": 10}},
		{Job{"a", "100"}, 0, map[string]float64{"ns": 1000}},
		{Job{"b", "100"}, 0, map[string]float64{"ns": 100}},
	}, Tables: []Table{{Title: "Cost", Figure: "ns"}}}
	var svg bytes.Buffer
	if err := r.Plot(&svg); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(svg.Bytes(), new(struct{})); err != nil {
		t.Errorf("the plot is no XML: %v", err)
	}
	for _, want := range []string{
		"<polyline points=\"80.0,340.0 520.0,40.0\"",
		"<circle cx=\"520.0\" cy=\"190.0\"", ">keys</text>", ">10</text>", ">a</text>",
	} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, svg.String())
		}
	}
}

// TestShort: an aim of a hundredth more can be told from none.
func TestShort(t *testing.T) {
	for x, want := range map[float64]string{
		1.01: "1.01", 1: "1", 0.92: "0.92", 1.6: "1.6", 21.234: "21.2", 170.3: "170", 2.26: "2.3",
	} {
		if got := short(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}

// TestNoise: what was measured once says nothing of a drift.
func TestNoise(t *testing.T) {
	once := Results{
		{Figures: map[string]float64{Others: 0.25, Yardstick: 7}},
		{Figures: map[string]float64{Others: 0.25, Yardstick: 7}},
	}
	if got := once.Noise(); got != "0.25 cores" {
		t.Error(got)
	}
}
