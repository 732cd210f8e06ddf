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

	scan   jsonScan       // the line that was read last
	object map[string]any // likewise, where the scan leaves it to package json; else nil
}

func (l *jsonLog) another() logFormat { return &jsonLog{timeField: l.timeField} }

func (l *jsonLog) read(line []byte) (at time.Time, err error) {
	l.object = nil
	if !l.scan.read(line) {
		if l.object, err = jsonObject(line); err != nil {
			return at, err
		}
	}
	text, err := l.field(l.timeField)
	if err != nil {
		return at, err
	}
	if len(text) > 4 && text[4] == '-' { // else it is no date: a failed attempt costs memory
		if at, err = time.Parse(time.RFC3339Nano, string(text)); err == nil {
			return at, nil
		}
	}
	return sinceEpoch(text)
}

func (l *jsonLog) field(name string) ([]byte, error) {
	if l.object == nil {
		return l.scan.field(name)
	}
	text, err := jsonField(l.object, name)
	return []byte(text), err
}

// jsonObject reads any line that is a JSON object.
func jsonObject(line []byte) (object map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&object); err != nil || object == nil {
		return nil, errors.New("must be a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one JSON object, with nothing after it")
	}
	return object, nil
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
			return "", errNoJSONField(name)
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
	return "", errNoJSONText(name)
}

func errNoJSONField(name string) error { return fmt.Errorf("has no field %.40q", name) }

func errNoJSONText(name string) error {
	return fmt.Errorf("its field %.40q is no text, number or truth value", name)
}

// sinceEpoch reads a number of seconds since 1970, or of smaller units if it is too large for that.
func sinceEpoch(text []byte) (time.Time, error) {
	x, err := strconv.ParseFloat(string(text), 64)
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
