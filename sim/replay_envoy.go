package sim

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// envoyFields are the fields of a line of Envoy's log.
var envoyFields = []string{
	"ip", "forwarded", "request", "method", "path", "query", "protocol", "status", "flags",
	"received", "bytes", "duration", "agent", "id", "host", "upstream",
}

// envoyLog reads lines of an Envoy that logs texts in its default form.
//
//	[2016-04-15T20:17:00.310Z] "POST /a?b HTTP/2" 204 - 154 0 226 100
//	"10.0.35.28" "agent" "id" "host" "tcp://10.0.2.1:80"
//
// in one line.
type envoyLog struct {
	web     commonLog // takes the request apart
	numbers [6][]byte // status, flags, received, bytes, duration, and what upstream took of it
	texts   [5][]byte // forwarded, agent, id, host, upstream
}

var (
	errEnvoyForm = errors.New(`must be as Envoy's default is: [2016-04-15T20:17:00.310Z] ` +
		`"GET /a HTTP/2" 200 - 0 17 2 1 "203.0.113.9" "agent" "id" "host" "10.0.2.1:80"`)

	envoyNumbers = map[string]int{
		"status": 0, "flags": 1, "received": 2, "bytes": 3, "duration": 4,
	}
	envoyTexts = map[string]int{"forwarded": 0, "agent": 1, "id": 2, "host": 3, "upstream": 4}
)

func (*envoyLog) another() logFormat { return &envoyLog{} }

func (l *envoyLog) read(line []byte) (at time.Time, err error) {
	when, rest, closed := bytes.Cut(line, []byte("] "))
	if !closed || !bytes.HasPrefix(when, []byte("[")) {
		return at, errEnvoyForm
	}
	if at, err = time.Parse(time.RFC3339Nano, string(when[1:])); err != nil {
		return at, fmt.Errorf("its time, %.40q, must be like 2016-04-15T20:17:00.310Z", when[1:])
	}
	quoted := false
	if l.web.request, rest, quoted = cutQuoted(rest); !quoted {
		return at, errEnvoyForm
	}
	for i := range l.numbers {
		l.numbers[i], rest = cutWord(rest)
	}
	for i := range l.texts {
		if l.texts[i], rest, quoted = cutQuoted(withoutBlanks(rest)); !quoted {
			return at, errEnvoyForm
		}
	}
	if len(withoutBlanks(rest)) > 0 {
		return at, errEnvoyForm
	}
	if !isStatus(l.numbers[0]) {
		return at, fmt.Errorf("its status, %.40q, is not a number", l.numbers[0])
	}
	return at, nil
}

// field returns a field of the line that was read last. Its ip is the last address of those that
// the request was forwarded for: Envoy itself has written that one.
func (l *envoyLog) field(name string) ([]byte, error) {
	if i, is := envoyNumbers[name]; is {
		return l.numbers[i], nil
	}
	if i, is := envoyTexts[name]; is {
		return l.web.unescaped(l.texts[i]), nil
	}
	if name == "ip" {
		all := l.texts[0]
		return withoutBlanks(all[bytes.LastIndexByte(all, ',')+1:]), nil
	}
	switch name {
	case "request", "method", "path", "query", "protocol":
		return l.web.field(name)
	}
	return nil, fmt.Errorf("has no field {%.40s}", name)
}
