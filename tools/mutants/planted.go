package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// readPlanted reads the hand-written mutants, of all rooms or one. An entry is
//
//	room: its name, which is also its fingerprint
//	breaks: the promise that it breaks
//	in path/of/a/file.go
//	-	a line of the file, without regard to indentation
//	+	what stands there instead
//
// An empty line ends the entry. The lines with - must stand together in the file, once.
func readPlanted(root, name string, rooms []*room) ([]*mutant, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var list []*mutant
	for entry := range strings.SplitSeq(string(text), "\n\n") {
		m, err := planted(root, strings.TrimSpace(entry), rooms)
		if err != nil && m == nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		} else if err != nil {
			m.stale = err
		}
		if m != nil {
			list = append(list, m)
		}
	}
	return list, nil
}

func planted(root, entry string, rooms []*room) (*mutant, error) {
	m := &mutant{}
	var old, fresh []string
	for line := range strings.SplitSeq(entry, "\n") {
		rest := line
		cut := func(prefix string) bool {
			var ok bool
			rest, ok = strings.CutPrefix(line, prefix)
			return ok
		}
		switch {
		case cut("#"):
		case cut("-"):
			old = append(old, strings.TrimSpace(rest))
		case cut("+"):
			fresh = append(fresh, strings.TrimSpace(rest))
		case cut("breaks: "):
			m.breaks = rest
		case cut("in "):
			m.file = rest
		case line != "":
			of, name, _ := strings.Cut(line, ": ")
			if m.operator = name; m.operator == "" {
				const begins = "a room and a colon, breaks, in, - or +"
				return nil, fmt.Errorf("%q is not a mutant's line: it begins with %s", line, begins)
			}
			if m.room = roomOf(rooms, of); m.room == nil {
				return nil, fmt.Errorf("%q: there is no room %q", line, of)
			}
		}
	}
	if m.operator == "" && len(old) == 0 {
		return nil, nil // a comment
	}
	if m.operator == "" || m.breaks == "" || m.file == "" || len(old) == 0 {
		const needs = "a name, the promise that it breaks, a file and lines with -"
		return nil, fmt.Errorf("%q needs %s", entry, needs)
	}
	return m, m.find(root, old, fresh)
}

// find looks for the lines that the mutant replaces.
func (m *mutant) find(root string, old, fresh []string) error {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return fmt.Errorf("%q: %w: write the mutant anew for the code of today", m.operator, err)
	}
	lines := strings.SplitAfter(string(source), "\n")
	found, offset := 0, 0
	for i := range lines {
		end, same := offset, i+len(old) <= len(lines)
		for k := 0; same && k < len(old); k++ {
			same = strings.TrimSpace(lines[i+k]) == old[k]
			end += len(lines[i+k])
		}
		if same {
			found++
			m.start, m.end, m.line = offset, end, i+1
		}
		offset += len(lines[i])
	}
	if found != 1 {
		return fmt.Errorf("%q: its lines stand %d times in %s: write it anew for the code of today",
			m.operator, found, m.file)
	}
	m.source, m.text = source, strings.Join(fresh, "\n")+"\n"
	return nil
}

// readExplained reads the survivors that no test can kill: a fingerprint, then its reason in
// indented lines.
func readExplained(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	last := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t") && last != "":
			reasons[last] = strings.TrimSpace(reasons[last] + " " + strings.TrimSpace(line))
		default:
			last = line
			reasons[last] = ""
		}
	}
	for print, reason := range reasons {
		if reason == "" {
			return nil, fmt.Errorf("%s: %q has no reason: write it below, indented by a tab", name,
				print)
		}
	}
	return reasons, nil
}
