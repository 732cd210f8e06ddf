package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of the log.
const (
	// Kept is how many entries of one name are remembered, the latest ones.
	Kept = 10
	// MaxNames bounds the names that a node may add to, those of deleted limits among them.
	MaxNames = 10_000
	// MaxLimit bounds the definition of a limit, in bytes.
	MaxLimit = 16 << 10

	parts      = 256
	maxCounter = 1 << 53
	maxWriter  = 256
)

// Version names one entry: its place in the order of all entries. The zero Version is that of a
// name without entries.
type Version struct {
	Counter uint64 // one more than the largest that the writer knew
	Writer  string // id of the node that wrote it
}

// String is as ParseVersion reads it: "12@node-1", or "none".
func (v Version) String() string {
	if v == (Version{}) {
		return "none"
	}
	return strconv.FormatUint(v.Counter, 10) + "@" + v.Writer
}

// ParseVersion reads what String writes.
func ParseVersion(text string) (Version, error) {
	if text == "none" {
		return Version{}, nil
	}
	counter, writer, _ := strings.Cut(text, "@")
	n, err := strconv.ParseUint(counter, 10, 64)
	if err != nil || n == 0 || n > maxCounter || writer == "" || len(writer) > maxWriter {
		return Version{}, fmt.Errorf("%.80q is no version; versions look like 12@node-1, or none",
			text)
	}
	return Version{n, writer}, nil
}

// MarshalText is String.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText is ParseVersion.
func (v *Version) UnmarshalText(text []byte) (err error) {
	*v, err = ParseVersion(string(text))
	return err
}

// Entry is one change of one limit.
type Entry struct {
	Name    string  `json:"name"`    // of the limit
	Version Version `json:"version"` // of this entry
	Base    Version `json:"base"`    // of the entry that it replaced
	// client that asked for it; empty where nobody has to say
	By string `json:"by"`
	// wall clock of the writer, ms since the Unix epoch
	AtMs  int64           `json:"at_ms"`
	Limit json.RawMessage `json:"limit,omitempty"` // as policy.Format writes it; absent: deleted
}

// Deleted reports whether the entry took the limit away.
func (e *Entry) Deleted() bool { return len(e.Limit) == 0 }

// compare orders all entries: by version. A writer that has lost its memory may give a version
// twice, so the rest of an entry counts too.
func (e *Entry) compare(other *Entry) int {
	return cmp.Or(cmp.Compare(e.Version.Counter, other.Version.Counter),
		cmp.Compare(e.Version.Writer, other.Version.Writer), cmp.Compare(e.AtMs, other.AtMs),
		bytes.Compare(e.Limit, other.Limit), cmp.Compare(e.By, other.By),
		cmp.Compare(e.Base.Counter, other.Base.Counter),
		cmp.Compare(e.Base.Writer, other.Base.Writer))
}

// check accepts or refuses what comes from a file or a peer; its definition is not read.
func (e *Entry) check() error {
	switch v := e.Version; {
	case e.Name == "":
		return errors.New("an entry without a name")
	case v.Counter == 0 || v.Counter > maxCounter || v.Writer == "":
		return fmt.Errorf("an entry of %.80q with the version %s", e.Name, v)
	case len(e.Limit) > MaxLimit:
		return fmt.Errorf("an entry of %.80q with %d bytes", e.Name, len(e.Limit))
	}
	return nil
}

func (e *Entry) hash() uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(e) // neither can fail
	return h.Sum64()
}

// Log is all entries that a node remembers: of each name the Kept latest. It is a value of a
// merge that is commutative, associative and idempotent, so nodes that have heard of the same
// entries in any order have the same Log. It is not safe for concurrent use.
type Log struct {
	names   map[string][]Entry // latest first
	counter uint64             // the largest seen
	hashes  [parts]uint64      // of the entries of each part, in any order
}

// NewLog is an empty one.
func NewLog() *Log { return &Log{names: map[string][]Entry{}} }

// Merge adds an entry, and reports whether the log is another one now.
func (l *Log) Merge(e Entry) bool {
	l.counter = max(l.counter, e.Version.Counter)
	list := l.names[e.Name]
	at, known := slices.BinarySearchFunc(list, &e,
		func(a Entry, b *Entry) int { return b.compare(&a) })
	if known || at == Kept {
		return false
	}
	part := &l.hashes[PartOf(e.Name)]
	*part ^= e.hash()
	list = slices.Insert(slices.Clone(list), at, e)
	if len(list) > Kept {
		*part ^= list[Kept].hash()
		list = list[:Kept]
	}
	l.names[e.Name] = list
	return true
}

// Next is the entry that a writer would add now.
func (l *Log) Next(writer, name string) Entry {
	return Entry{Name: name, Version: Version{l.counter + 1, writer}, Base: l.Head(name).Version}
}

// Head is the entry in force; the zero Entry if the name has none.
func (l *Log) Head(name string) Entry {
	if list := l.names[name]; len(list) > 0 {
		return list[0]
	}
	return Entry{}
}

// History is what is remembered of a name, the latest first.
func (l *Log) History(name string) []Entry { return slices.Clone(l.names[name]) }

// Names are all that have an entry.
func (l *Log) Names() []string { return slices.Sorted(maps.Keys(l.names)) }

// Live counts the names that are not deleted.
func (l *Log) Live() (n int) {
	for _, list := range l.names {
		if !list[0].Deleted() {
			n++
		}
	}
	return n
}

// Hashes has one number for each part: logs with equal entries have equal ones.
func (l *Log) Hashes() [parts]uint64 { return l.hashes }

// PartOf is the part that a name belongs to.
func PartOf(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % parts)
}

// Parts are the entries of all parts that want names, one part after the other: the first ones have
// whole parts, of which the hashes are equal where they have been merged.
func (l *Log) Parts(want func(part int) bool) (list []Entry) {
	names := l.Names()
	slices.SortStableFunc(names, func(a, b string) int { return PartOf(a) - PartOf(b) })
	for _, name := range names {
		if want(PartOf(name)) {
			list = append(list, l.names[name]...)
		}
	}
	return list
}

// superseded reports whether a writer that knew e has replaced it, or e is in force: then the
// writer of e has not lost a race.
func superseded(e *Entry, history []Entry) bool {
	for i := range history {
		if history[i].Base == e.Version || history[i].compare(e) == 0 && i == 0 {
			return true
		}
	}
	return false
}
