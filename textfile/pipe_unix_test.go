//go:build unix

package textfile

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Promise: a pipe is read as a file is, if what writes into it ends. One that does not end
// is an error in the end, and so is a device; neither is read again.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(path); err != nil || len(text) > 0 { // nobody writes: it is empty
		t.Errorf("without a writer: %q, %v", text, err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for _, said := range []string{"", "a token"} {
		if _, err := io.WriteString(writer, said); err != nil {
			t.Fatal(err)
		}
		if text, err := read(path, 20*time.Millisecond); err == nil ||
			!strings.Contains(err.Error(), "give a file") {
			t.Errorf("with a writer that stays, after %q: %q, %v", said, text, err)
		}
	}

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.WriteString(w, "a token"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	substituted := filepath.Join("/dev/fd", strconv.Itoa(int(r.Fd())))
	if text, err := Read(substituted); err != nil || string(text) != "a token" {
		t.Errorf("as a shell gives one: %q, %v", text, err)
	}
	for path, refused := range map[string]bool{
		path: true, substituted: true, "/dev/zero": true, t.TempDir(): false, path + ".none": false,
	} {
		if err := Again(path); (err != nil) != refused {
			t.Errorf("%s is read again: %v", path, err)
		}
	}
	if _, err := Read("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero") {
		t.Errorf("/dev/zero: %v", err)
	}
}
