//go:build unix

package policy

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Promise: a pipe among the files is an error. To read it would be to wait for a program that
// writes, and a node that waits there neither takes over other changes nor ends.
func TestPipeInADirectory(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), "limits: []\n")
	pipe := filepath.Join(dir, "b.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	_, err := Load(dir)
	if err == nil || !strings.Contains(err.Error(), pipe+": is neither a file nor a directory") {
		t.Error(err)
	}
}
