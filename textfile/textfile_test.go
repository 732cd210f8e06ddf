package textfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Promise: a file is read whole, and one that is too large, a folder and what is not there are
// errors that name the path.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.yaml")
	for _, c := range []struct {
		name string
		size int
		want string // of the error
	}{
		{"empty", 0, ""},
		{"small", 5, ""},
		{"the largest", Most, ""},
		{"larger", Most + 1, "more than"},
	} {
		if err := os.WriteFile(path, make([]byte, c.size), 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := Read(path)
		switch {
		case c.want == "" && (err != nil || len(text) != c.size):
			t.Errorf("%s: %d bytes, %v", c.name, len(text), err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), path)):
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Promise: a file that is changed while it is read again and again is never waited for.
func TestReadWhileWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	end := time.Now().Add(50 * time.Millisecond)
	for i := 0; time.Now().Before(end); i++ {
		if err := os.WriteFile(path, []byte(strings.Repeat("x", i%100)), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := Read(path); err != nil || len(text) != i%100 {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
	}
}
