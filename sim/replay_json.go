package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// jsonLog reads lines that are a JSON object each; timeField is where the time stands: a text like
// 2026-01-31T12:00:00.5Z, or a number of seconds, ms, µs or ns since 1970, told apart by its size.
// Fields of objects within are joined by dots.
type jsonLog struct {
	timeField string
	object    map[string]any // the line that was read last
}

func (l *jsonLog) read(line []byte) (at time.Time, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	l.object = nil
	if err := d.Decode(&l.object); err != nil || l.object == nil {
		return at, errors.New("must be a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return at, errors.New("must be one JSON object, with nothing after it")
	}
	text, err := jsonField(l.object, l.timeField)
	if err != nil {
		return at, err
	}
	if at, err = time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	return sinceEpoch(text)
}

func (l *jsonLog) field(name string) ([]byte, error) {
	text, err := jsonField(l.object, name)
	return []byte(text), err
}

func jsonField(object map[string]any, name string) (string, error) {
	var value any = object
	for rest, more := name, true; more; {
		var step string
		within, _ := value.(map[string]any)      // of what is no object nothing is found
		if whole, found := within[rest]; found { // a name may have dots of its own
			value, more = whole, false
			continue
		}
		step, rest, more = strings.Cut(rest, ".")
		var ok bool
		if value, ok = within[step]; !ok {
			return "", fmt.Errorf("has no field %.40q", name)
		}
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", fmt.Errorf("its field %.40q is no text, number or truth value", name)
}

// sinceEpoch reads a number of seconds since 1970, or of smaller units if it is too large for that.
func sinceEpoch(text string) (time.Time, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || x < 0 || x > 1e19 {
		return time.Time{}, fmt.Errorf("its time, %.40q, is neither like 2026-01-31T12:00:00Z "+
			"nor a number since 1970", text)
	}
	for x >= 1e11 { // as seconds, that would be after the year 5000
		x /= 1000
	}
	whole := math.Floor(x)
	return time.Unix(int64(whole), int64(math.Round((x-whole)*1e9))), nil
}
