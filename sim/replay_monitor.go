package sim

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"penstock/limiter"
)

// Fields of lines that MONITOR of a Redis prints. 1 to 9 are the parts of the key between colons.
var (
	incrFields = []string{"ip", "db", "key", "1", "2", "3", "4", "5", "6", "7", "8", "9", "cost"}
	cellFields = append(incrFields[:len(incrFields):len(incrFields)], "burst", "count", "period")
)

// monitorLog reads what MONITOR of a Redis prints: of redis-cell's CL.THROTTLE, or of clients that
// count by INCR and INCRBY. Other commands are passed over.
//
//	1339518083.107412 [0 127.0.0.1:60866] "CL.THROTTLE" "login:alice" "15" "30" "60" "1"
type monitorLog struct {
	cell   bool
	db, ip []byte
	words  [][]byte // the key, and what stands behind it
	room   []byte   // for texts that were escaped
}

var errMonitorForm = errors.New(`must be as MONITOR prints it: 1339518083.107412 ` +
	`[0 127.0.0.1:60866] "CL.THROTTLE" "login:alice" "15" "30" "60"`)

func (l *monitorLog) another() logFormat { return &monitorLog{cell: l.cell} }

func (l *monitorLog) read(line []byte) (at time.Time, err error) {
	if string(line) == "OK" { // the answer to MONITOR itself
		return at, errPassedOver
	}
	when, rest, opened := bytes.Cut(line, []byte(" ["))
	origin, rest, closed := bytes.Cut(rest, []byte("] "))
	if !opened || !closed {
		return at, errMonitorForm
	}
	if at, err = sinceEpoch(when); err != nil {
		return at, fmt.Errorf("its time, %.40q, must be like 1339518083.107412", when)
	}
	var found bool
	if l.db, l.ip, found = bytes.Cut(origin, []byte(" ")); !found {
		return at, errMonitorForm
	}
	if colon := bytes.LastIndexByte(l.ip, ':'); colon > 0 {
		l.ip = bytes.Trim(l.ip[:colon], "[]") // IPv6 stands in brackets
	}
	command, err := l.take(rest)
	if err != nil {
		return at, err
	}
	return at, l.check(string(bytes.ToLower(command)))
}

// take splits words in quotes.
func (l *monitorLog) take(rest []byte) (command []byte, err error) {
	l.words, l.room = l.words[:0], l.room[:0]
	for len(rest) > 0 {
		text, behind, quoted := cutQuoted(rest)
		if !quoted {
			return nil, errMonitorForm
		}
		rest = withoutBlanks(behind)
		if bytes.Contains(text, backslash) {
			plain, err := strconv.Unquote(`"` + string(text) + `"`)
			if err != nil {
				return nil, fmt.Errorf("%.40q is not a word that Redis has put in quotes", text)
			}
			from := len(l.room)
			l.room = append(l.room, plain...)
			text = l.room[from:]
		}
		l.words = append(l.words, text)
	}
	if len(l.words) == 0 {
		return nil, errMonitorForm
	}
	command, l.words = l.words[0], l.words[1:]
	return command, nil
}

// check finds out whether the command is a request.
func (l *monitorLog) check(command string) error {
	n := len(l.words)
	switch {
	case l.cell && command == "cl.throttle":
		if n != 4 && n != 5 {
			return fmt.Errorf("CL.THROTTLE has %d words behind it; it needs key, max_burst, "+
				"count, period, and may have a quantity", n)
		}
	case !l.cell && (command == "incr" && n == 1 || command == "incrby" && n == 2):
	default:
		return errPassedOver
	}
	for i, number := range l.words[1:] {
		if err := l.checkNumber(i, string(number)); err != nil {
			return err
		}
	}
	return nil
}

// checkNumber checks the number at i behind the key.
func (l *monitorLog) checkNumber(i int, number string) error {
	least, most := uint64(0), uint64(limiter.MaxLimit-1)
	if l.cell && (i == 1 || i == 2) { // count and period
		least = 1
	}
	if l.cell && i == 2 {
		most = uint64(limiter.MaxPer / time.Second)
	}
	if n, err := strconv.ParseUint(number, 10, 64); err != nil || n < least || n > most {
		return fmt.Errorf("%.40q must be a whole number from %d to %d", number, least, most)
	}
	return nil
}

func (l *monitorLog) field(name string) ([]byte, error) {
	switch name {
	case "ip":
		return l.ip, nil
	case "db":
		return l.db, nil
	case "key":
		return l.words[0], nil
	case "burst":
		return l.words[1], nil
	case "count":
		return l.words[2], nil
	case "period":
		return l.words[3], nil
	case "cost":
		if last := len(l.words) - 1; last == 4 || !l.cell && last == 1 {
			return l.words[last], nil
		}
		return []byte("1"), nil
	}
	parts := strings.Split(string(l.words[0]), ":")
	if i := int(name[0] - '1'); i < len(parts) {
		return []byte(parts[i]), nil
	}
	return nil, fmt.Errorf("its key, %.40q, has no part {%s}", l.words[0], name)
}
