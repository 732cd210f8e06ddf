package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"penstock/limiter/policy"
)

// importVerb writes limits and rules that do what the configuration of another program does.
type importVerb struct {
	From string `arg:"" enum:"envoy,gubernator,nginx,kong,redis-cell" help:"The other program."`
	File string `arg:"" complete:"file" help:"Its configuration, or requests; - is stdin."`
}

// Help is printed below the verb's line.
func (importVerb) Help() string {
	return "Limits and rules go to the standard output as YAML for --limits; what could not be " +
		"carried over goes to the standard error. FILE is for envoy a file of " +
		"envoyproxy/ratelimit, for " +
		"gubernator its requests as JSON, for nginx its configuration, for kong its declarative " +
		"configuration, for redis-cell lines of CL.THROTTLE as MONITOR prints them. " +
		"docs/coming-from has an example of each."
}

func (v *importVerb) Run(sh shell) error {
	in, name := io.Reader(os.Stdin), "standard input"
	if v.File != "-" {
		file, err := os.Open(v.File)
		if err != nil {
			return err
		}
		defer file.Close()
		in, name = file, v.File
	}
	text, err := io.ReadAll(io.LimitReader(in, maxImported+1))
	if err != nil {
		return err
	}
	if len(text) > maxImported {
		return fmt.Errorf("%s: has more than %d MiB", name, maxImported>>20)
	}
	d := &draft{file: name}
	if err := importers[v.From](d, text); err != nil {
		return err
	}
	if len(d.limits) == 0 {
		return fmt.Errorf("%s: has no limit of %s in it", name, v.From)
	}
	out := d.yaml(v.From)
	if _, err := policy.Parse("imported.yaml", []byte(out)); err != nil {
		return fmt.Errorf("%s: what was made of it is refused: %w", name, err)
	}
	for _, n := range d.notes {
		fmt.Fprintln(sh.err, n)
	}
	_, err = io.WriteString(sh.out, out)
	return err
}

// importers read the file of another program into a draft.
var importers = map[string]func(*draft, []byte) error{
	"envoy": importEnvoy, "gubernator": importGubernator, "nginx": importNginx,
	"kong": importKong, "redis-cell": importCell,
}

// maxImported bounds a file that is imported, in bytes.
const maxImported = 64 << 20

// draft is what has been read of a file: limits, rules, and what has no place in either.
type draft struct {
	file   string
	limits []draftLimit
	rules  []draftRule
	notes  []string

	names map[string]int  // where each limit stands in limits
	noted map[string]bool // texts of notes, without their places
}

// draftLimit is a limit as it will be written.
type draftLimit struct {
	name      string
	fields    []field // beside the name, in this order
	overrides []string
}

// field is a name and a value in YAML.
type field struct{ name, value string }

// draftRule is a rule as it will be written.
type draftRule struct {
	match []field
	apply []field // a limit's name, and the template of its key
}

// note says what was not carried over, once for each text, with the line where it was first.
func (d *draft) note(line int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if d.noted[text] {
		return
	}
	if d.noted == nil {
		d.noted = map[string]bool{}
	}
	d.noted[text] = true
	place := d.file
	if line > 0 {
		place += ":" + strconv.Itoa(line)
	}
	d.notes = append(d.notes, place+": "+text)
}

// limit adds a limit, unless there is one of its name.
func (d *draft) limit(l draftLimit) {
	if d.named(l.name) != nil {
		return
	}
	if d.names == nil {
		d.names = map[string]int{}
	}
	d.names[l.name] = len(d.limits)
	d.limits = append(d.limits, l)
}

func (d *draft) named(name string) *draftLimit {
	if i, there := d.names[name]; there {
		return &d.limits[i]
	}
	return nil
}

// yaml is all of d as a file for --limits.
func (d *draft) yaml(from string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Imported by: penstock import %s %s\nlimits:\n", from, d.file)
	for _, l := range d.limits {
		fields := append([]field{{"name", text(l.name)}}, l.fields...)
		if len(l.overrides) > 0 {
			fields = append(fields, field{"overrides", "[" + strings.Join(l.overrides, ", ") + "]"})
		}
		fmt.Fprintf(&b, "  - %s\n", flow(fields))
	}
	if len(d.rules) > 0 {
		b.WriteString("rules:\n")
	}
	for _, r := range d.rules {
		fmt.Fprintf(&b, "  - match: %s\n", flow(r.match))
		if len(r.apply) == 0 {
			b.WriteString("    unlimited: true\n")
			continue
		}
		var apply []string
		for _, a := range r.apply {
			apply = append(apply, flow([]field{{"limit", text(a.name)}, {"key", text(a.value)}}))
		}
		fmt.Fprintf(&b, "    apply: [%s]\n", strings.Join(apply, ", "))
	}
	return b.String()
}

// flow writes fields as {name: value, …}.
func flow(fields []field) string {
	var words []string
	for _, f := range fields {
		words = append(words, text(f.name)+": "+f.value)
	}
	return "{" + strings.Join(words, ", ") + "}"
}

var plainText = regexp.MustCompile(`^[A-Za-z_]+$`)

// text writes s as YAML: plain where that is the same text, else in quotes.
func text(s string) string {
	plain := plainText.MatchString(s)
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// texts writes one text, or several as a list.
func texts(all []string) string {
	if len(all) == 1 {
		return text(all[0])
	}
	var words []string
	for _, s := range all {
		words = append(words, text(s))
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// deepest is how many blocks, brackets or marks of lists may lie within one another.
const deepest = 256

// tooDeep is an error about what the YAML library would take minutes over: its time grows with the
// square of how deep brackets and marks of lists lie within one another.
func (d *draft) tooDeep(data []byte) error {
	number, depth := 0, 0
	for line := range bytes.Lines(data) {
		number++
		marks := 0
		for rest := line; len(rest) > 1 && rest[0] <= '-'; rest = rest[1:] {
			if rest[0] == '-' && rest[1] == ' ' {
				marks++
			}
		}
		for _, c := range line {
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			}
			if max(marks, depth) > deepest {
				return fmt.Errorf("%s:%d: more than %d brackets or lists are open here", d.file,
					number, deepest)
			}
		}
	}
	return nil
}

// readYAML reads text into v; a fault names the file, and its line and column.
func (d *draft) readYAML(data []byte, v any) error {
	if err := d.tooDeep(data); err != nil {
		return err
	}
	err := yaml.Unmarshal(data, v)
	var fault yaml.Error
	if errors.As(err, &fault) && fault.GetToken() != nil {
		at := fault.GetToken().Position
		return fmt.Errorf("%s:%d:%d: %s", d.file, at.Line, at.Column, fault.GetMessage())
	}
	return err
}
