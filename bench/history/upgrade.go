package main

import (
	"path/filepath"

	"penstock/bench/history/judge"
)

// buildPrevious builds the program as it was at a commit.
func (c *cluster) buildPrevious(top, commit string) error {
	dir := filepath.Join(c.dir, "previous")
	if err := command("git", "clone", "-q", "--shared", top, dir); err != nil {
		return err
	}
	if err := command("git", "-C", dir, "checkout", "-q", commit); err != nil {
		return err
	}
	c.previous = c.binary + "-previous"
	return command("go", "build", "-C", dir, "-o", c.previous, "./cmd/node")
}

// program is what a node runs.
func (c *cluster) program(n *node) string {
	if c.previous != "" && !n.upgraded {
		return c.previous
	}
	return c.binary
}

// upgrade restarts a node with the other build: a node of the previous one if there is one, so that
// all are upgraded one after the other, and then back again.
func (r *run) upgrade(f *judge.Fault) error {
	live := r.cluster.in(up)
	n := live[r.dice.IntN(len(live))]
	for _, other := range live {
		if !other.upgraded {
			n = other
			break
		}
	}
	f.Nodes = []string{n.name}
	if err := r.goodbye(n); err != nil {
		return err
	}
	n.upgraded = !n.upgraded
	return r.cluster.start(n)
}
