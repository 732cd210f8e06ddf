package audit

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Memory holds the latest entries, the latest first, and no more of them however many come.
func TestLastEntries(t *testing.T) {
	l := New(new(strings.Builder), slog.New(slog.DiscardHandler))
	for i := range 2*kept + 7 {
		l.Add(Entry{Target: strconv.Itoa(i)})
		if got := l.Last(2)[0].Target; got != strconv.Itoa(i) {
			t.Fatalf("the latest of %d entries is %s", i+1, got)
		}
	}
	all := l.Last(10 * kept)
	if len(all) != kept || all[kept-1].Target != strconv.Itoa(kept+7) {
		t.Errorf("%d entries, the oldest %s", len(all), all[len(all)-1].Target)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// full writes a part of one line, and the next ones as a whole.
type full struct {
	strings.Builder
	left int
}

func (f *full) Write(line []byte) (int, error) {
	if f.left > 0 {
		n, _ := f.Builder.Write(line[:f.left])
		f.left = 0
		return n, errors.New("no space left")
	}
	return f.Builder.Write(line)
}

// Promise: a line that a full disk has cut spoils no other one.
func TestLineThatIsCut(t *testing.T) {
	f := &full{left: 20}
	l := New(f, slog.New(slog.DiscardHandler))
	for _, who := range []string{"cut", "b", "c"} {
		l.Add(Entry{Who: who, Action: "drain"})
	}
	var read []string
	for line := range strings.Lines(f.String()) {
		var e Entry
		if json.Unmarshal([]byte(line), &e) == nil {
			read = append(read, e.Who)
		}
	}
	if strings.Join(read, " ") != "b c" {
		t.Errorf("%q can be read of %q", read, f)
	}
}

// Entries are lines of JSON. A writer that fails is told of once, and memory goes on.
func TestLines(t *testing.T) {
	var lines, said strings.Builder
	l := New(&lines, slog.New(slog.NewTextHandler(&said, nil)))
	l.Add(Entry{Who: "a", Action: "drain"})
	l.Add(Entry{Who: "b\n", Action: "drain"})
	for line := range strings.Lines(lines.String()) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action != "drain" {
			t.Errorf("%q: %v", line, err)
		}
	}
	if n := strings.Count(lines.String(), "\n"); n != 2 {
		t.Errorf("%d lines", n)
	}
	l.out = broken{}
	l.Add(Entry{Who: "c"})
	l.Add(Entry{Who: "d"})
	if n := l.Lost(); n != 2 {
		t.Errorf("%d entries are lost, not 2", n)
	}
	if l.Last(1)[0].Who != "d" || strings.Count(said.String(), "no space left") != 1 {
		t.Errorf("last %v, said %s", l.Last(1), &said)
	}
}

// Promise: when a log has been renamed and is opened again, its entries go on in a new file, and
// none is lost. A file that cannot be opened again is no loss either.
func TestFileIsOpenedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.Add(Entry{Who: "a"})
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Add(Entry{Who: "b"})
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Add(Entry{Who: "c"})
	if err := os.Rename(path, path+".2"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if l.Reopen() == nil {
		t.Error("a directory is opened as a log")
	}
	l.Add(Entry{Who: "d"})
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{path + ".1": "a b", path + ".2": "c d"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var who []string
		for line := range strings.Lines(string(text)) {
			var e Entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			who = append(who, e.Who)
		}
		if got := strings.Join(who, " "); got != want || l.Lost() != 0 {
			t.Errorf("%s has the entries %s, not %s; %d are lost", name, got, want, l.Lost())
		}
	}
}
