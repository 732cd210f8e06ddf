package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"penstock/limiter"
)

// importCell makes limits of CL.THROTTLE commands, which bring theirs along: one for each
// beginning of a key up to its first colon, or for each set of numbers. A rule gives each beginning
// its first limit.
func importCell(d *draft, data []byte) error {
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSpace(line)
		at := commandAt(line)
		if at < 0 {
			other := strings.HasPrefix(line, "#") || strings.Contains(line, `"`)
			if line != "" && line != "OK" && !other {
				return fmt.Errorf("%s:%d: %.60q is not a CL.THROTTLE", d.file, number, line)
			}
			continue // another command that MONITOR has printed
		}
		words, err := cellWords(line[at:])
		if err != nil {
			return fmt.Errorf("%s:%d: %w", d.file, number, err)
		}
		if err := d.cellLimit(number, words[0], words[1:]); err != nil {
			return fmt.Errorf("%s:%d: %w", d.file, number, err)
		}
	}
	return nil
}

// monitored is what MONITOR prints before a command: the time, the database and the client.
var monitored = regexp.MustCompile(`^[0-9.]+ \[[^\]]*\S*\] `)

// commandAt is where the command begins in a line, in letters of either case; -1 if it is not
// there. In a line of MONITOR it is the first word: keys of other commands may have its name. A
// line in lower case may be longer: bytes that are not UTF-8 become three.
func commandAt(line string) int {
	const name = "cl.throttle"
	from, to := 0, len(line)
	if at := len(monitored.FindString(line)); at > 0 {
		from, to = at+1, min(to, at+1+len(name)) // behind a quote
	}
	for i := from; i+len(name) <= to; i++ {
		if strings.EqualFold(line[i:i+len(name)], name) {
			return i
		}
	}
	return -1
}

// cellWords are the key and the numbers of a command. Words may stand in quotes.
func cellWords(command string) (words []string, err error) {
	rest := strings.TrimPrefix(command[len("cl.throttle"):], `"`) // that of MONITOR, at its name
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		word := rest
		if rest[0] == '"' {
			if word, err = strconv.QuotedPrefix(rest); err != nil {
				return nil, fmt.Errorf("%.60q is not a word in quotes", rest)
			}
			rest = rest[len(word):]
			word, _ = strconv.Unquote(word)
		} else {
			word, rest, _ = strings.Cut(rest, " ")
		}
		words = append(words, word)
	}
	if len(words) != 4 && len(words) != 5 {
		return nil, fmt.Errorf("CL.THROTTLE has %d words; it needs key, max_burst, count, period",
			len(words))
	}
	return words, nil
}

// cellOther is the limit of keys with a beginning that is no name of a limit. It is itself no
// beginning of a key, for it has a colon.
const cellOther = "cl.throttle:other"

func (d *draft) cellLimit(line int, key string, numbers []string) error {
	var n [3]int64
	for i := range n {
		var err error
		n[i], err = strconv.ParseInt(numbers[i], 10, 64)
		if err != nil || n[i] < 0 || i > 0 && n[i] == 0 {
			return fmt.Errorf("%q: max_burst, count and period are whole numbers", numbers[i])
		}
	}
	fields := []field{
		{"algorithm", "gcra"},
		{"limit", fmt.Sprint(n[1])},
		{"per", fmt.Sprintf("%ds", n[2])},
		{"burst", fmt.Sprint(n[0] + 1)}, // max_burst is beyond the first
	}
	name, _, found := strings.Cut(key, ":")
	if !found || name == "" || limiter.Taken(name) != "" {
		name = cellOther
		d.note(line, "keys without a colon, or with a beginning that no limit can be named, are "+
			"under the limit %s, and under no rule", name)
	}
	for i := 2; ; i++ { // one beginning with several sets of numbers has several limits
		l := d.named(name)
		if l == nil {
			d.limit(draftLimit{name: name, fields: fields})
			if i == 2 && name != cellOther && !strings.Contains(name, "*") {
				d.rules = append(d.rules, draftRule{
					[]field{{"key", text(name + ":*")}}, []field{{name, "{key}"}},
				})
			}
			return nil
		}
		if flow(l.fields) == flow(fields) {
			return nil
		}
		base, _, _ := strings.Cut(name, "#")
		name = fmt.Sprintf("%s#%d", base, i)
		d.note(line, "%s: keys that begin so have other numbers here: limit %s, under no rule",
			base, name)
	}
}
