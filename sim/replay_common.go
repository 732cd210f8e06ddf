package sim

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// commonFields are the fields of a line of the Common Log Format, or of the Combined one.
var commonFields = []string{
	"ip", "user", "request", "method", "path", "query", "protocol", "status", "bytes",
	"referer", "agent",
}

// commonLog reads lines as most web servers write them: the Common Log Format, and the Combined
// one, which has two fields more.
//
//	203.0.113.9 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326 "referer" "me"
//
// A log has millions of lines, so one commonLog serves for all of them and allocates nothing: the
// fields are parts of the line, or of scratch.
type commonLog struct {
	ip, user, request, status, bytes []byte
	rest                             []byte // behind bytes: referer and agent, if they are there
	scratch                          []byte // a text without its backslashes

	minute commonMinute
}

const commonTime = "02/Jan/2006:15:04:05 -0700"

var (
	errCommonForm = errors.New(`must be like: 203.0.113.9 - frank ` +
		`[10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326`)

	dash, backslash, escapedQuote, quote = []byte("-"), []byte(`\`), []byte(`\"`), []byte(`"`)
)

func (*commonLog) another() logFormat { return &commonLog{} }

// read takes line apart. Its fields live as long as the line does, and until the next one is read.
func (l *commonLog) read(line []byte) (at time.Time, err error) {
	client, rest, opened := bytes.Cut(line, []byte(" ["))
	when, rest, closed := bytes.Cut(rest, []byte("] "))
	ip, client, _ := bytes.Cut(client, []byte(" "))
	_, user, _ := bytes.Cut(client, []byte(" "))
	if !opened || !closed || len(ip) == 0 || len(user) == 0 {
		return at, errCommonForm
	}
	if at, err = l.minute.parse(when); err != nil {
		return at, fmt.Errorf("its time, %.40q, must be like 10/Oct/2000:13:55:36 -0700", when)
	}
	request, rest, quoted := cutQuoted(rest)
	status, rest := cutWord(rest)
	size, rest := cutWord(rest)
	if !quoted || len(size) == 0 {
		return at, errCommonForm
	}
	if !isStatus(status) {
		return at, fmt.Errorf("its status, %.40q, is not a number", status)
	}
	l.ip, l.user, l.request, l.status, l.bytes, l.rest = ip, user, request, status, size, rest
	return at, nil
}

// field returns a field of the line that was read last.
func (l *commonLog) field(name string) ([]byte, error) {
	switch name {
	case "ip":
		return l.ip, nil
	case "user":
		return l.user, nil
	case "request":
		return l.unescaped(l.request), nil
	case "method", "path", "query", "protocol":
		return l.partOfRequest(name), nil
	case "status":
		return l.status, nil
	case "bytes":
		if bytes.Equal(l.bytes, dash) {
			return []byte("0"), nil
		}
		return l.bytes, nil
	case "referer", "agent":
		referer, rest, _ := cutQuoted(l.rest)
		agent, _, _ := cutQuoted(withoutBlanks(rest))
		if name == "agent" {
			referer = agent
		}
		return l.unescaped(referer), nil
	}
	return nil, fmt.Errorf("has no field {%.40s}", name)
}

// partOfRequest cuts "GET /a?b HTTP/1.1" into its parts.
func (l *commonLog) partOfRequest(name string) []byte {
	method, target, _ := bytes.Cut(l.unescaped(l.request), []byte(" "))
	if name == "method" {
		return method
	}
	target, protocol, _ := bytes.Cut(target, []byte(" "))
	if name == "protocol" {
		return protocol
	}
	path, query, _ := bytes.Cut(target, []byte("?"))
	if name == "path" {
		return path
	}
	return query
}

// unescaped is text with its quotes as they were.
func (l *commonLog) unescaped(text []byte) []byte {
	if !bytes.Contains(text, backslash) {
		return text
	}
	l.scratch = append(l.scratch[:0], bytes.ReplaceAll(text, escapedQuote, quote)...)
	return l.scratch
}

// cutQuoted takes a text in quotes off the front of s, and the quotes off the text. Quotes inside
// it stay escaped by a backslash.
func cutQuoted(s []byte) (text, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '"' {
		return nil, s, false
	}
	for i := 1; ; i++ {
		end := bytes.IndexByte(s[i:], '"')
		if end < 0 {
			return nil, s, false
		}
		if i += end; !isEscaped(s[1:i]) {
			return s[1:i], s[i+1:], true
		}
	}
}

// isEscaped reports whether a character behind before is escaped: an odd number of backslashes
// stands there.
func isEscaped(before []byte) bool {
	n := 0
	for n < len(before) && before[len(before)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// cutWord takes a word off the front of s, with the blanks around it.
func cutWord(s []byte) (word, rest []byte) {
	s = withoutBlanks(s)
	end := 0
	for end < len(s) && !isBlank(s[end]) {
		end++
	}
	return s[:end], withoutBlanks(s[end:])
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// withoutBlanks is s from its first character on that is no blank.
func withoutBlanks(s []byte) []byte {
	for len(s) > 0 && isBlank(s[0]) {
		s = s[1:]
	}
	return s
}

// isStatus reports whether word is a number of at most three digits.
func isStatus(word []byte) bool {
	for _, c := range word {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(word) > 0 && len(word) <= 3
}

// commonMinute parses the times of a log. Those of one minute differ in two digits only, so that
// package time is asked once a minute.
type commonMinute struct {
	text  string // the last one that package time has parsed
	start time.Time
}

const (
	secondsAt  = len("02/Jan/2006:15:04:")
	secondsEnd = secondsAt + 2
)

func (m *commonMinute) parse(text []byte) (time.Time, error) {
	if len(text) == len(commonTime) && len(m.text) == len(text) &&
		string(text[:secondsAt]) == m.text[:secondsAt] &&
		string(text[secondsEnd:]) == m.text[secondsEnd:] {
		tens, ones := text[secondsAt]-'0', text[secondsAt+1]-'0'
		if tens < 6 && ones < 10 {
			return m.start.Add(time.Duration(tens*10+ones) * time.Second), nil
		}
	}
	whole := string(text)
	at, err := time.Parse(commonTime, whole)
	if err == nil {
		m.text, m.start = whole, at.Add(-time.Duration(at.Second())*time.Second)
	}
	return at, err
}
