package penstock_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// maxCommitted is how large a file of the repository may be: the largest, which is generated, has
// 162 KiB.
const maxCommitted = 512 << 10

// Promise: no program and no log of a run is committed by mistake: each clone would have it for
// ever.
func TestNothingLargeIsCommitted(t *testing.T) {
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("no clone of the repository")
	}
	list, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for name := range bytes.SplitSeq(list, []byte{0}) {
		info, err := os.Lstat(string(name))
		if err != nil { // the last name is empty, and a file may have been removed since
			continue
		}
		if n++; info.Size() > maxCommitted {
			t.Errorf("%s has %d bytes; at most %d are committed", name, info.Size(), maxCommitted)
		}
	}
	if n < 1000 {
		t.Errorf("%d files are committed; git has listed too few", n)
	}
}
