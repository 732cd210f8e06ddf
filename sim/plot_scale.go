package sim

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// scale is the range of a plot's values, and those that are written at its axis.
func (plot *panel) scale() (low, high float64, ticks []float64) {
	low, high = math.Inf(1), 0
	for _, l := range plot.lines {
		for _, v := range l.values {
			if v > 0 { // not for NaN either
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		low, high = 1, 1
	}
	if plot.log {
		low, high = math.Pow(10, math.Floor(math.Log10(low))),
			math.Pow(10, math.Ceil(math.Log10(high)))
		if low == high {
			high *= 10
		}
		every := math.Ceil(math.Log10(high/low) / 4)
		for k := 0.0; low*math.Pow(10, k) <= high*1.001; k += every {
			ticks = append(ticks, low*math.Pow(10, k))
		}
		return low, high, ticks
	}
	step := niceStep(high / max(1, math.Floor(plot.height/30)))
	high = step * math.Ceil(high/step-1e-9)
	for k := 0.0; k*step <= high*1.001; k++ {
		ticks = append(ticks, k*step)
	}
	return 0, high, ticks
}

// niceStep is the first of 1, 2, 5, 10, … in any power of ten that is not less than x.
func niceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= x*0.9999 {
			return n * power
		}
	}
	return 10 * power
}

// timeAxis draws the axis below all plots.
func (p *picture) timeAxis(y float64) float64 {
	step := timeStep(time.Duration(p.end * 1e6))
	fmt.Fprintf(p, `<line class="axis" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`+"\n", plotLeft, y,
		plotRight, y)
	for t := time.Duration(0); millis(t) <= p.end*1.0001; t += step {
		x := p.x(millis(t))
		fmt.Fprintf(p, `<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x, y, x,
			y+4)
		label := spanText(millis(t))
		p.text(min(x, pictureWidth-2-charWidth*float64(utf8.RuneCountInString(label))/2),
			y+rowHeight, "dim", "middle", label)
	}
	return y + rowHeight + 4
}

// timeStep is a pause between labels of a time axis that people would choose.
func timeStep(end time.Duration) time.Duration {
	const labels = 11
	steps := []time.Duration{
		1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000,
		30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000,
	}
	for _, ms := range steps {
		if step := ms * time.Millisecond; end/step < labels {
			return step
		}
	}
	for _, hours := range []time.Duration{1, 2, 4, 6, 12, 24, 48} {
		if step := hours * time.Hour; end/step < labels {
			return step
		}
	}
	return (end/labels/(24*time.Hour) + 1) * 24 * time.Hour
}
