package sim

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// jsonScan takes a line apart that is a JSON object, where that needs no copy of it: a log has
// millions of lines, and package json takes several times as long for each. What is unusual is left
// to that package: escapes, bytes that are no UTF-8, many objects within each other, and all that
// is wrong.
type jsonScan struct {
	line    []byte
	members []jsonMember // of the line itself
	within  []jsonMember // of an object in it
	wide    bool         // there is more than ASCII
}

// jsonMember is a member of an object. Its value is as it stands in the line.
type jsonMember struct{ name, value []byte }

// mostNested is how many objects and lists stand within each other at most.
const mostNested = 32

// jsonText tells which bytes a text may have that is as it stands in the line.
var jsonText = func() (may [256]bool) {
	for c := ' '; c < 256; c++ {
		may[c] = c != '"' && c != '\\'
	}
	return may
}()

// read reports whether line was taken apart.
func (s *jsonScan) read(line []byte) bool {
	s.line, s.members, s.wide = line, s.members[:0], false
	if len(line) == 0 || line[0] != '{' {
		return false
	}
	end := s.object(0, 1, &s.members)
	return end == len(line) && (!s.wide || utf8.Valid(line))
}

// object returns where the object ends that begins at i; -1: it is not a plain one. It appends the
// members to keep, if that is not nil.
func (s *jsonScan) object(i, depth int, keep *[]jsonMember) int {
	i = s.blanks(i + 1)
	if s.at(i) == '}' {
		return i + 1
	}
	for {
		if s.at(i) != '"' {
			return -1
		}
		end := s.text(i)
		if end < 0 {
			return -1
		}
		name := s.line[i+1 : end-1]
		if i = s.blanks(end); s.at(i) != ':' {
			return -1
		}
		i = s.blanks(i + 1)
		if end = s.value(i, depth); end < 0 {
			return -1
		}
		if keep != nil {
			*keep = append(*keep, jsonMember{name, s.line[i:end]})
		}
		switch i = s.blanks(end); s.at(i) {
		case '}':
			return i + 1
		case ',':
			i = s.blanks(i + 1)
		default:
			return -1
		}
	}
}

// list returns where the list ends that begins at i.
func (s *jsonScan) list(i, depth int) int {
	i = s.blanks(i + 1)
	if s.at(i) == ']' {
		return i + 1
	}
	for {
		end := s.value(i, depth)
		if end < 0 {
			return -1
		}
		switch i = s.blanks(end); s.at(i) {
		case ']':
			return i + 1
		case ',':
			i = s.blanks(i + 1)
		default:
			return -1
		}
	}
}

// value returns where the value ends that begins at i.
func (s *jsonScan) value(i, depth int) int {
	switch s.at(i) {
	case '"':
		return s.text(i)
	case '{':
		if depth < mostNested {
			return s.object(i, depth+1, nil)
		}
	case '[':
		if depth < mostNested {
			return s.list(i, depth+1)
		}
	case 't':
		return s.word(i, "true")
	case 'f':
		return s.word(i, "false")
	case 'n':
		return s.word(i, "null")
	default:
		return s.number(i)
	}
	return -1
}

func (s *jsonScan) word(i int, word string) int {
	if end := i + len(word); end <= len(s.line) && string(s.line[i:end]) == word {
		return end
	}
	return -1
}

// text returns where the text ends, with its quotes, that begins at i.
func (s *jsonScan) text(i int) int {
	line := s.line
	var all byte
	for i++; i < len(line) && jsonText[line[i]]; i++ {
		all |= line[i]
	}
	s.wide = s.wide || all >= utf8.RuneSelf
	if i < len(line) && line[i] == '"' {
		return i + 1
	}
	return -1
}

// number returns where the number ends that begins at i: -12.5e+7.
func (s *jsonScan) number(i int) int {
	if s.at(i) == '-' {
		i++
	}
	whole := s.digits(i)
	if whole == i || s.at(i) == '0' && whole > i+1 {
		return -1
	}
	if i = whole; s.at(i) == '.' {
		if i = s.digits(i + 1); i == whole+1 {
			return -1
		}
	}
	if s.at(i) == 'e' || s.at(i) == 'E' {
		if i++; s.at(i) == '+' || s.at(i) == '-' {
			i++
		}
		from := i
		if i = s.digits(i); i == from {
			return -1
		}
	}
	return i
}

// digits returns where digits end that begin at i.
func (s *jsonScan) digits(i int) int {
	for c := s.at(i); c >= '0' && c <= '9'; c = s.at(i) {
		i++
	}
	return i
}

func (s *jsonScan) blanks(i int) int {
	for s.at(i) == ' ' || s.at(i) == '\t' || s.at(i) == '\r' {
		i++
	}
	return i
}

// at is the byte at i; 0 behind the end, which stands nowhere in a plain line.
func (s *jsonScan) at(i int) byte {
	if i < len(s.line) {
		return s.line[i]
	}
	return 0
}

// field is a field of the line, as jsonField finds it.
func (s *jsonScan) field(name string) ([]byte, error) {
	value, within := []byte(nil), s.members
	for rest, more := name, true; more; {
		var step string
		if whole := last(within, rest); whole != nil {
			value, more = whole, false
			continue
		}
		step, rest, more = strings.Cut(rest, ".")
		if value = last(within, step); value == nil {
			return nil, errNoJSONField(name)
		}
		if more {
			within = s.membersOf(value)
		}
	}
	switch value[0] {
	case '"':
		return value[1 : len(value)-1], nil
	case '{', '[', 'n':
		return nil, errNoJSONText(name)
	}
	return value, nil
}

// last is the value of the last member of this name: it counts where a name stands twice.
func last(members []jsonMember, name string) (value []byte) {
	for i := range members {
		if string(members[i].name) == name {
			value = members[i].value
		}
	}
	return value
}

// membersOf are those of a value that was scanned; of what is no object there are none.
func (s *jsonScan) membersOf(value []byte) []jsonMember {
	if !bytes.HasPrefix(value, []byte{'{'}) {
		return nil
	}
	inner := jsonScan{line: value, members: s.within[:0]}
	inner.object(0, 0, &inner.members)
	s.within = inner.members
	return s.within
}
