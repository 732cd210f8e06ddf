// Package audit records what clients and files have changed at a node: the client, from where,
// what, and how it was before and after. An entry is a line of JSON; the last ones are kept in
// memory as well. Entries hold no token, and of a key that was changed only a hash; the keys of
// overrides, and the beginnings of keys that clients may use, are as they were written.
package audit

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Entry is one change.
type Entry struct {
	Time   time.Time `json:"time"`
	Who    string    `json:"who"`    // the client, by its name and a prefix of its token's hash
	From   string    `json:"from"`   // its address
	Action string    `json:"action"` // such as "reset"
	Target string    `json:"target"` // a limit or a file
	Key    string    `json:"key_hash,omitempty"`
	Units  int64     `json:"units,omitzero"` // that were given back
	Before any       `json:"before,omitempty"`
	After  any       `json:"after,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// HashKey is what an entry shows of a key. Equal keys have equal hashes, and a short key can be
// guessed from its hash.
func HashKey(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))[:16] }

// kept is the number of entries in memory.
const kept = 1000

// Log records entries. A nil *Log records nothing.
type Log struct {
	path string // of the file that out is; empty: it is none
	log  *slog.Logger

	mu     sync.Mutex // guards below, and writes
	out    io.Writer  // nil: the program's log
	recent []Entry    // a ring once it is full
	next   int        // the place of the oldest, then
	failed bool       // the last line could not be written
	lost   uint64     // lines that could not be written
}

// New makes a log that writes lines of JSON to out, or to log if out is nil.
func New(out io.Writer, log *slog.Logger) *Log { return &Log{out: out, log: log} }

// Open makes a log that appends lines of JSON to the file at path, which need not be there.
func Open(path string, log *slog.Logger) (*Log, error) {
	file, err := open(path)
	if err != nil {
		return nil, err
	}
	return &Log{path: path, out: file, log: log}, nil
}

func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// Reopen goes on in the file that is at the path of the log now: the one from before may have been
// renamed. If there is an error, the log goes on in that one.
func (l *Log) Reopen() error {
	if l == nil || l.path == "" {
		return nil
	}
	file, err := open(l.path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	before := l.out
	l.out = file
	l.mu.Unlock()
	_ = before.(io.Closer).Close() // what could not be written to it was said
	return nil
}

// Close closes the file of the log.
func (l *Log) Close() error {
	if l == nil || l.path == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.(io.Closer).Close()
}

// HasFile reports whether the log is written for itself, and not among the lines of the program.
func (l *Log) HasFile() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out != nil
}

// Lost is how many entries could not be written.
func (l *Log) Lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Add records e.
func (l *Log) Add(e Entry) {
	if l == nil {
		return
	}
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recent) < kept {
		l.recent = append(l.recent, e)
	} else {
		l.recent[l.next] = e
		l.next = (l.next + 1) % kept
	}
	if l.out == nil {
		l.log.Info("audit", "entry", json.RawMessage(line))
		return
	}
	if line = append(line, '\n'); l.failed { // the last one may be there in part
		line = append([]byte{'\n'}, line...)
	}
	if err == nil {
		_, err = l.out.Write(line)
	}
	if err != nil && !l.failed {
		l.log.Error("the audit log cannot be written; entries are kept in memory alone", "error",
			err)
	}
	if l.failed = err != nil; l.failed {
		l.lost++
	}
}

// Last returns up to n entries, the latest first.
func (l *Log) Last(n int) []Entry {
	out := []Entry{}
	if l == nil {
		return out
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range min(n, len(l.recent)) {
		at := (l.next - 1 - i + 2*len(l.recent)) % len(l.recent)
		out = append(out, l.recent[at])
	}
	return out
}
