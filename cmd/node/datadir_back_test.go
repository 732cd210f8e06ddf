package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Promise (--data-dir): what was given back stays so, whatever the file of a node says that was
// killed, and has come back.
func TestGivenBackSinceAFileIsGivenBack(t *testing.T) {
	t.Parallel()
	k := &kept{t: t, limits: write(t, testLimits)}
	for range 3 {
		k.dirs = append(k.dirs, filepath.Join(t.TempDir(), "counters of a node"))
	}
	k.start()
	k.ask(50)
	k.wantCharged("at first")
	eventually(t, "all is in a file", func() error {
		if n := k.onDisk(); n < keptKeys {
			return fmt.Errorf("%d of %d keys are", n, keptKeys)
		}
		return nil
	})
	time.Sleep(time.Second) // heirs have copies
	k.ask(-50)
	time.Sleep(500 * time.Millisecond) // … and have heard of that
	if err := k.nodes[2].cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	k.nodes[2].exitCode(t)
	k.wantCharged("while it is away")
	k.nodes[2] = serveProcess(t, "n3", "--limits", k.limits, "--data-dir", k.dirs[2], "--join",
		k.nodes[0].gossip)
	eventually(t, "it is back", func() error { return oneCluster(k.nodes...) })
	time.Sleep(time.Second) // what its file says has been said
	k.wantCharged("when it is back")
}
