package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Promise: however many SIGHUPs come, and however long files take to be read again, a SIGTERM stops
// the node.
func TestStopsDuringAStormOfReloads(t *testing.T) {
	var many strings.Builder
	many.WriteString("limits:\n")
	for i := range 5000 {
		fmt.Fprintf(&many, "  - {name: limit-%d, algorithm: gcra, limit: 10, per: 1m}\n", i)
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	putFile(t, file, many.String())
	p := serveProcess(t, "n1", "--limits", file)
	for range 40 {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // so that the process sees more than one
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exitCode(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
