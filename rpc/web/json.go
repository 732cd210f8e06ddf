package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"penstock/cluster"
	"penstock/rpc/door"
)

// maxNesting is how deep a request goes: body, items, item, inline.
const maxNesting = 4

// outline is what a body looks like before it is decoded: where each of its items begins.
type outline struct {
	items  []int64
	sought string   // a name, or empty
	places []string // of the fields of that name
}

// item is the index of the item that has the byte at offset, or -1.
func (o *outline) item(offset int64) int {
	return sort.Search(len(o.items), func(i int) bool { return o.items[i] > offset }) - 1
}

// survey walks through a body and refuses what encoding/json would bear in silence: it takes "KEY"
// for "key" and the last of two fields, and replaces what is not Unicode, so that two keys would be
// counted as one. It stops at the first item too many, before memory is spent on the rest. Bad
// syntax it leaves to the decoder, which words it better.
func survey(b []byte) (*outline, error) {
	o := &outline{}
	return o, o.walk(b)
}

// placeOf is where b has a field of this name, or the name alone if several fields have it.
func placeOf(b []byte, name string) string {
	o := &outline{sought: name}
	if o.walk(b); len(o.places) == 1 {
		return o.places[0]
	}
	return name
}

func (o *outline) walk(b []byte) error {
	if at := notUnicode(b); at >= 0 {
		return door.Wrong("body", "has a text that is not Unicode at byte %d; keys of any bytes "+
			"can be sent in a query or over gRPC", at+1)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var levels []level
	for {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			levels = levels[:len(levels)-1]
		} else {
			if n := len(levels); n > 0 {
				if isName, err := levels[n-1].next(levels, token); err != nil {
					return err
				} else if isName {
					o.pass(token, levels)
					continue
				}
				if err := o.note(levels, d.InputOffset()); err != nil {
					return err
				}
			}
			if ok {
				if len(levels) == maxNesting {
					return door.Wrong(where(levels), "is nested deeper than any request")
				}
				l := level{index: -1}
				if delim == '{' {
					l.fields = map[string]bool{}
				}
				levels = append(levels, l)
			}
		}
		if len(levels) == 0 {
			return nil
		}
	}
}

// pass takes down where the name is that is sought.
func (o *outline) pass(name json.Token, levels []level) {
	if name == o.sought {
		o.places = append(o.places, where(levels))
	}
}

// note takes down that a value ends at offset, if it is an item.
func (o *outline) note(levels []level, offset int64) error {
	if len(levels) != 2 || levels[0].name != "items" || levels[1].fields != nil {
		return nil
	}
	if o.items = append(o.items, offset); len(o.items) > cluster.MaxItems {
		return door.Wrong("items", "has more than %d items; 1 to %d are accepted", cluster.MaxItems,
			cluster.MaxItems)
	}
	return nil
}

// level is an object or array that a survey is in.
type level struct {
	fields map[string]bool // of an object, so far; nil for an array
	name   string          // of the field that is being read, or was read last
	value  bool            // a value is next, and not a name
	index  int             // of the element that came last
}

// next takes note of a name, or of the beginning of a value.
func (l *level) next(levels []level, token json.Token) (isName bool, err error) {
	switch {
	case l.fields == nil:
		l.index++
		return false, nil
	case l.value:
		l.value = false
		return false, nil
	}
	l.name, l.value = token.(string), true
	switch {
	case l.name == "":
		return true, door.Wrong(cmp.Or(where(levels), "body"), "has a field without a name")
	case strings.Trim(l.name, "abcdefghijklmnopqrstuvwxyz_") != "" && !inAttributes(levels):
		return true, door.Wrong(where(levels),
			"is unknown; the names of all fields are in lower case")
	case l.fields[l.name]:
		return true, door.Wrong(where(levels), "is given twice")
	}
	l.fields[l.name] = true
	return true, nil
}

// inAttributes reports whether names are those of attributes, which the authors of rules choose.
func inAttributes(levels []level) bool { return len(levels) == 2 && levels[0].name == "attributes" }

// where is where a survey stands, as in "items[3].key".
func where(levels []level) string {
	var b strings.Builder
	for _, l := range levels {
		switch {
		case l.fields == nil && l.index >= 0:
			b.WriteString("[" + strconv.Itoa(l.index) + "]")
		case l.name != "":
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			fmt.Fprintf(&b, "%.40s", l.name)
		}
	}
	return b.String()
}

// notUnicode is where b has bytes that are not UTF-8, or the escape of half a surrogate pair; -1 if
// nowhere.
func notUnicode(b []byte) int {
	for i := 0; i < len(b); {
		switch r, size := utf8.DecodeRune(b[i:]); {
		case r == utf8.RuneError && size == 1:
			return i
		case r != '\\':
			i += size
		default:
			unit := escaped(b[i:])
			if !utf16.IsSurrogate(unit) {
				i += 2
				continue
			}
			if i+6 > len(b) || utf16.DecodeRune(unit, escaped(b[i+6:])) == utf8.RuneError {
				return i
			}
			i += 12
		}
	}
	return -1
}

// escaped is the value of a \uXXXX at the beginning of b, or 0.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
