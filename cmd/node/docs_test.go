package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostNotRun is how many blocks of commands may be marked as not run. Each says why.
const mostNotRun = 5

// What the documents tell people to type works as it stands there, from the first line of a
// document to the last, and prints what they show. Each document has a shell and a directory of its
// own, with loopback and three addresses off it in a network of its own, so that the default ports
// are free.
func TestDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("runs every command of the documents")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	notRun, ran := 0, 0
	documents := documentsOf(t, root)
	for _, name := range documents {
		steps, marked := readDocument(t, filepath.Join(root, name))
		notRun += marked
		if len(steps) == 0 {
			continue
		}
		ran += len(steps)
		t.Run(name, func(t *testing.T) { followDocument(t, root, name, steps) })
	}
	if notRun > mostNotRun {
		t.Errorf("%d blocks are marked as not run; want %d at most", notRun, mostNotRun)
	}
	t.Logf("%d commands and files of %d documents, %d blocks not run", ran, len(documents), notRun)
}

// documentsOf are the documents below root.
func documentsOf(t *testing.T, root string) []string {
	t.Helper()
	documents := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/coming-from/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(found))
		}
		for _, path := range found {
			name, _ := filepath.Rel(root, path)
			documents = append(documents, name)
		}
	}
	return documents
}

// step is one thing that a reader does.
type step struct {
	line    int
	block   int    // which block of the document it is in
	file    string // the block is saved under this name
	command string // or this is typed
	// what the document shows of the output: of this step and those of its block before it
	shown string
}

var (
	fence    = regexp.MustCompile("(?ms)^(?:<!-- not run: ([^\n]+) -->\n)?```([a-z]*)\n(.*?)^```$")
	fileName = regexp.MustCompile(`^# (\S+\.yaml)\n`)
)

// readDocument finds what a reader is told to do: blocks of the language sh, and those without one
// that begin with $; what a block without a language shows is printed by the one before it. A YAML
// file that begins with its name is saved.
func readDocument(t *testing.T, path string) (steps []step, notRun int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var before string // language of the block before
	for block, at := range fence.FindAllSubmatchIndex(text, -1) {
		line := 1 + strings.Count(string(text[:at[4]]), "\n")
		language, body := string(text[at[4]:at[5]]), string(text[at[6]:at[7]])
		switch {
		case at[2] >= 0:
			notRun++
			t.Logf("%s:%d is not run: %s", filepath.Base(path), line, text[at[2]:at[3]])
			language = "not run"
		case language == "sh":
			for _, command := range commands(t, body) {
				steps = append(steps, step{line: line, block: block, command: command})
			}
		case language == "" && strings.HasPrefix(body, "$ "):
			for part := range strings.SplitSeq(strings.TrimPrefix(body, "$ "), "\n$ ") {
				command, shown, _ := strings.Cut(part, "\n")
				steps = append(steps, step{
					line: line, block: block, command: command,
					shown: shown,
				})
			}
			language = "sh"
		case language == "" && before == "sh":
			steps[len(steps)-1].shown += body
		case language == "yaml" && fileName.MatchString(body):
			steps = append(steps, step{
				line: line, block: block,
				file: fileName.FindStringSubmatch(body)[1], shown: body,
			})
		}
		before = language
	}
	return steps, notRun
}

// commands splits a block where bash sees a whole command.
func commands(t *testing.T, block string) (all []string) {
	t.Helper()
	whole := ""
	for line := range strings.Lines(block) {
		whole += line
		// bash warns of a here-document that has no end yet.
		said, err := exec.Command("bash", "-n", "-c", whole).CombinedOutput()
		if strings.HasSuffix(line, "\\\n") || err != nil ||
			strings.Contains(string(said), "here-document") {
			continue
		}
		if strings.TrimSpace(whole) != "" {
			all = append(all, whole)
		}
		whole = ""
	}
	if whole != "" {
		t.Fatalf("bash takes this for no command:\n%s", whole)
	}
	return all
}

// serves are commands that run until Ctrl-C. A reader has them in a shell of their own, with & or
// without.
var serves = regexp.MustCompile(`^(?:go run \./cmd/node|penstock) (serve|demo)\b([^&\n#]*)`)

func followDocument(t *testing.T, root, name string, steps []step) {
	r := newReader(t, root, name)
	printed, block := "", -1
	for i, s := range steps {
		if s.block != block {
			printed, block = "", s.block
		}
		if s.file != "" {
			r.save(s)
			continue
		}
		if served := serves.FindStringSubmatch(s.command); served != nil {
			if i == 0 || steps[i-1].block != s.block {
				r.stop(s)
			}
			if !r.serve(s, served[1]) {
				t.Logf("%s:%d and all below is not run: no network can be made here", name, s.line)
				break
			}
			if last := i+1 == len(steps) || steps[i+1].block != s.block ||
				!serves.MatchString(steps[i+1].command); last {
				r.await(s)
			}
			continue
		}
		out, code := r.run(s.command)
		if printed += out; code != 0 || strings.Contains(out, `"type":"about:blank"`) {
			t.Fatalf("%s:%d: exit code %d\n%s%s", name, s.line, code, s.command, out)
		}
		if missing := lacks(printed, s.shown); missing != "" {
			t.Errorf("%s:%d: %sprinted\n%s\nThe document shows a line that is not like any of "+
				"these, or not in this order:\n%s",
				name, s.line, s.command, printed, missing)
		}
		printed = afterShown(printed, s.shown)
	}
	r.stop(steps[len(steps)-1])
}

// afterShown forgets what a step has printed once it was compared with what is shown of it.
func afterShown(printed, shown string) string {
	if shown != "" {
		return ""
	}
	return printed
}

// likeness turns what differs from run to run into the same: numbers, times, hashes, and which node
// was asked. An answer's status stays as it is.
var likeness = []struct {
	is   *regexp.Regexp
	like string
}{
	{regexp.MustCompile(`(?m)^Date: .*`), "Date:"},
	{regexp.MustCompile(`"source":"[a-z-]+"`), `"source":""`},
	{regexp.MustCompile(`(?m)^source +[a-z-]+$`), "source"},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "0"},
	{regexp.MustCompile(`\b[0-9][0-9.,]*(?:ns|µs|ms|s|m)\b|\bat once\b`), "0s"},
	{regexp.MustCompile(`\b[0-9]+(?:[.,][0-9]+)*\b`), "0"},
	{regexp.MustCompile(` +`), " "},
}

var status = regexp.MustCompile(`^(?:HTTP/1\.1 )?[2-5][0-9][0-9]\b`)

func like(line string) string {
	line = strings.TrimSpace(line)
	if status.MatchString(line) {
		return line
	}
	for _, l := range likeness {
		line = l.is.ReplaceAllString(line, l.like)
	}
	return line
}

// lacks returns the first line that is shown and not printed after the ones before it. Documents
// may leave lines out, wrap JSON, and say after some blanks what a line means.
func lacks(printed, shown string) (missing string) {
	var lines []string
	for line := range strings.Lines(printed) {
		lines = append(lines, like(line))
	}
	for line := range strings.Lines(strings.ReplaceAll(shown, "\n \"", "\"")) {
		what, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "     ")
		at := slices.IndexFunc(lines, func(l string) bool {
			return l == like(line) ||
				l == like(what)
		})
		if at < 0 {
			return line
		}
		lines = lines[at+1:]
	}
	return ""
}

// Documents that show something else than what is printed are found out.
func TestLacks(t *testing.T) {
	const printed = "HTTP/1.1 429 Too Many Requests\r\nDate: " +
		"Mon\r\n\r\n{\"a\":17,\"source\":\"owner\"}\nremaining  4\n"
	for shown, want := range map[string]string{
		"HTTP/1.1 429 Too Many Requests\nDate: Sun, 1 Jan\n\n{\"a\":5,\n " +
			"\"source\":\"forwarded\"}\n": "",
		"remaining  3     of five\n": "",
		"HTTP/1.1 200 OK\n":          "HTTP/1.1 200 OK\n",
		"{\"b\":17}\n":               "{\"b\":17}\n",
		"remaining 4\nDate: Sun\n":   "Date: Sun\n",
		"limit  demo\n":              "limit  demo\n",
	} {
		if got := lacks(printed, shown); got != want {
			t.Errorf("%q: lacks %q; want %q", shown, got, want)
		}
	}
	if got := fmt.Sprint(commands(t,
		"a \\\n b\nfor i in 1; do\n  c\ndone\n\nd 'x\ny'\ncat <<E\nx\nE\n")); got != "[a \\\n b\n"+
		" for i in 1; do\n  c\ndone\n d 'x\ny'\n cat <<E\nx\nE\n]" {
		t.Errorf("commands: %q", got)
	}
}
