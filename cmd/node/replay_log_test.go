package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// Progress is told in one line, five times a second at most, and is gone when the log is read.
func TestProgress(t *testing.T) {
	var screen bytes.Buffer
	at := time.Unix(1000, 0)
	p := &progress{
		from: strings.NewReader(strings.Repeat("x", 8<<20)), to: &screen, size: 8 << 20, shown: at,
		now: func() time.Time { at = at.Add(60 * time.Millisecond); return at },
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, p, make([]byte, 1<<20))
	if n != 8<<20 || err != nil {
		t.Fatal(n, err)
	}
	want := "\r\x1b[Kreading: 4 of 8 MiB, 50 %" + "\r\x1b[Kreading: 8 of 8 MiB, 100 %" + "\r\x1b[K"
	if screen.String() != want {
		t.Errorf("%q\nwant %q", screen.String(), want)
	}
}
