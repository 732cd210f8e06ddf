package audit

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Promise: whatever a client is called, and whatever it changes, an entry is one line of JSON that
// says just that: nobody forges a second line.
func FuzzEntry(f *testing.F) {
	f.Add("ops (token 12ab34cd)", "10.0.0.1:5", "reset", "login", "k", "", int64(0))
	f.Add("a\n{\"who\":\"b\"}", "\x00", "\u2028", "\xff\xfe", "\"", "\\", int64(-1))
	f.Fuzz(func(t *testing.T, who, from, action, target, key, fault string, before int64) {
		var out bytes.Buffer
		l := New(&out, slog.New(slog.DiscardHandler))
		l.Add(Entry{
			Time: time.Unix(1, 0).
				UTC(),
			Who: who, From: from, Action: action, Target: target, Key: HashKey(key),
			Before: before, After: map[string]string{target: who}, Error: fault,
		})
		if n := bytes.Count(out.Bytes(), []byte("\n")); n != 1 ||
			!bytes.HasSuffix(out.Bytes(), []byte("\n")) {
			t.Fatalf("%d lines: %q", n, out.Bytes())
		}
		var e Entry
		if err := json.Unmarshal(out.Bytes(), &e); err != nil {
			t.Fatalf("%v: %q", err, out.Bytes())
		}
		said := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
		for _, p := range [][2]string{
			{e.Who, who}, {e.From, from}, {e.Action, action}, {e.Target, target}, {e.Error, fault},
		} {
			if strings.ReplaceAll(
				p[0],
				"\ufffd",
				"",
			) != strings.ReplaceAll(
				said(p[1]),
				"\ufffd",
				"",
			) {
				t.Fatalf("%q is written as %q", p[1], p[0])
			}
		}
	})
}
