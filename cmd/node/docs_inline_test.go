package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mention is a command in a sentence of a document. It may be a part of one: "`penstock limits put`
// changes it at all nodes".
type mention struct {
	line int
	text string
}

var (
	inlineCode    = regexp.MustCompile("`([^`]+)`")
	inlineCommand = regexp.MustCompile(`^(?:penstock|go run \./cmd/node|curl|redis-cli)(?:\s|$)`)
	// the answer of the command line to a command that lacks something
	incomplete = regexp.MustCompile(`^(?:expected (?:one of )?"|missing flags: )`)
	// changes nothing, and ends by itself
	harmless = regexp.MustCompile(
		`^(?:members|top|peek|healthcheck|limits list|policy (?:schema|validate|diff|explain))\b`,
	)
)

// mentions finds the commands in the sentences of a document.
func mentions(t *testing.T, path string) (all []mention) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sentences := fence.ReplaceAllFunc(text, func(block []byte) []byte { // lines keep their numbers
		return []byte(strings.Repeat("\n", strings.Count(string(block), "\n")))
	})
	for _, at := range inlineCode.FindAllSubmatchIndex(sentences, -1) {
		if code := string(sentences[at[2]:at[3]]); inlineCommand.MatchString(code) {
			all = append(all, mention{1 + strings.Count(string(sentences[:at[2]]), "\n"), code})
		}
	}
	return all
}

// arguments are those of a mention of penstock, with what a reader puts in.
func (m mention) arguments(put *strings.Replacer) []string {
	text := strings.TrimPrefix(strings.TrimPrefix(m.text, "go run ./cmd/node"), "penstock")
	return strings.Fields(put.Replace(text))
}

// parses reports whether arguments are a whole command, and what the command line finds wrong with
// them, if it is not that they are too few.
func parses(args []string) (all bool, wrong error) {
	var v verbs
	parser := newParser(&v, shell{out: io.Discard, err: io.Discard}, func(int) {})
	_, err := parser.Parse(joinNegatives(args))
	if err != nil && incomplete.MatchString(err.Error()) {
		return false, nil
	}
	return err == nil, err
}

// Commands in the sentences of documents have verbs and flags that there are. Those that are whole,
// change nothing and end by themselves work at a node. A whole curl or redis-cli stands in a block,
// where TestDocuments runs it.
func TestCommandsInSentences(t *testing.T) {
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	putFile(t, limits, login(5))
	r, _ := startNode(t, func(s *settings) {
		s.Limits, s.HTTP, s.GRPC = limits, "127.0.0.1:0", "127.0.0.1:0"
	})
	r.waitReady(t)
	t.Setenv("PENSTOCK_ADDR", r.doors.address("--grpc"))
	t.Setenv("PENSTOCK_HTTP", r.doors.address("--http"))
	put := strings.NewReplacer(
		"FILE-OR-DIRECTORY", limits, "FILE", limits, "OLD", limits, "NEW", limits,
		"HOST:PORT", r.doors.address("--grpc"), "NODE", r.doors.address("--grpc"),
		"LIMIT", "login", "KEY", "k", "-a …", "-a user=ann", "'", "")
	found, ran := 0, 0
	for _, document := range documentsOf(t, "../..") {
		for _, m := range mentions(t, filepath.Join("../..", document)) {
			found++
			if tool, rest, _ := strings.Cut(m.text, " "); tool == "curl" || tool == "redis-cli" {
				if strings.Contains(rest, "/") || strings.Contains(rest, " ") {
					t.Errorf("%s:%d: %s: a whole command stands in a block", document, m.line,
						m.text)
				}
				continue
			}
			args := m.arguments(put)
			all, wrong := parses(args)
			if wrong != nil {
				t.Errorf("%s:%d: %s: %v", document, m.line, m.text, wrong)
			}
			if !all || !harmless.MatchString(strings.Join(args, " ")) {
				continue
			}
			ran++
			var out, said strings.Builder
			if code := run(args, shell{out: &out, err: &said}); code != 0 {
				t.Errorf("%s:%d: %s: exit code %d\n%s%s", document, m.line, m.text, code, &out,
					&said)
			}
		}
	}
	if found < 60 || ran < 15 {
		t.Errorf("%d commands are found, and %d of them run: that is too few", found, ran)
	}
	t.Logf("%d commands in sentences, %d of them run", found, ran)
}

// Commands that there are not are found out.
func TestUnknownCommands(t *testing.T) {
	for text, wrong := range map[string]bool{
		"penstock": false, "penstock limits put": false, "penstock top --holds": false,
		"penstock policy replay a b --format json": false, "penstock sim check --seeds 9": false,
		"penstock limit": true, "penstock limits puts": true, "penstock top --hold": true,
		"penstock policy replay a b --format xml": true, "penstock sim check --seeds x": true,
		"penstock members now": true, "go run ./cmd/node serv": true,
		"penstock limits put --colour": true,
	} {
		args := mention{text: text}.arguments(strings.NewReplacer())
		if _, err := parses(args); (err != nil) != wrong {
			t.Errorf("%s: %v", text, err)
		}
	}
}
