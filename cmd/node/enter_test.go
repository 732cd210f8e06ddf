package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// earlier is the last commit of protocol 1 between nodes.
const earlier = "30ca56b"

// buildEarlier builds penstock as it was at that commit.
func buildEarlier(t *testing.T) (binary string) {
	t.Helper()
	if err := exec.Command("git", "cat-file", "-e", earlier+"^{commit}").Run(); err != nil {
		t.Skipf("git does not know commit %s here; fetch the whole history to enter from it",
			earlier)
	}
	tree := t.TempDir()
	archive := filepath.Join(tree, "earlier.tar")
	binary = filepath.Join(tree, "penstock")
	for _, c := range []*exec.Cmd{
		exec.Command("git", "-C", "../..", "archive", "-o", archive, earlier),
		exec.Command("tar", "xf", archive, "-C", tree),
		{Dir: tree, Args: []string{"go", "build", "-o", binary, "./cmd/node"}},
	} {
		if c.Path == "" {
			c.Path, _ = exec.LookPath(c.Args[0])
		}
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c.Args, err, out)
		}
	}
	return binary
}

// Promise: a cluster of the release of protocol 1 enters this one by a full restart with
// --data-dir, and loses nothing. A node of that release is refused, with a text that says what to
// do.
func TestEarlierReleaseIsEntered(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds another release")
	}
	k := &kept{t: t, limits: write(t, testLimits), binary: buildEarlier(t)}
	for range 3 {
		k.dirs = append(k.dirs, t.TempDir())
	}
	k.start()
	k.ask(2500)
	k.wantCharged("under the earlier release")
	k.stop(syscall.SIGTERM)

	earlier := k.binary
	k.binary = ""
	k.start()
	k.ask(2500)
	k.wantCharged("after a full restart of this release")

	old, _ := startWith(t, "old", func(c *exec.Cmd) { c.Path = earlier }, "--join",
		k.nodes[0].gossip)
	eventually(t, "a node of the earlier release is refused with advice", func() error {
		for _, p := range append(k.nodes, old) {
			if strings.Contains(p.log(), "nodes of two protocols do not mix") {
				return nil
			}
		}
		return errors.New("nobody says so")
	})
	k.wantCharged("beside a node of the earlier release")
}
