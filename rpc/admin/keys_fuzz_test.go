package admin

import (
	"fmt"
	"strings"
	"testing"

	"penstock/limiter"
)

// Promise: a cursor is one that a node has given, in the text that it has given, or an error that
// says so.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{
		"0.0", "1f.2a", "ffffffff.ffffffff", "", ".", "0", "0.", ".0", " 0.0", "0.0 ", "00.0",
		"100000000.0", "-1.0", "+1.0", "0x1.0", "A.B", "0.0.0", "0.0\n", "1_0.0",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := readCursor(text)
		switch given := fmt.Sprintf("%x.%x", c.Part, c.Mix); {
		case err == nil && given != text:
			t.Fatalf("%q is read as %q", text, given)
		case err != nil && (c != limiter.Cursor{}) && given == text:
			t.Fatalf("%q is refused: %v", text, err)
		case err != nil && !strings.Contains(err.Error(), "cursor"):
			t.Fatalf("%q: %v", text, err)
		}
	})
}
