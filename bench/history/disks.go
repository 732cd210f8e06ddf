package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"penstock/bench/history/judge"
)

// diskBytes is the size of the file system on which a node keeps its counters.
const diskBytes = 16 << 20

// disk is the folder for a node's counters, on a file system of its own, which can be full.
func (c *cluster) disk(n *node) string { return filepath.Join(c.dir, n.name+"-data") }

// mount makes the disks of all nodes; an error where this user may not.
func (c *cluster) mount() error {
	for _, n := range c.nodes {
		err := os.MkdirAll(c.disk(n), 0o700)
		if err == nil {
			err = syscall.Mount("penstock", c.disk(n), "tmpfs", 0,
				fmt.Sprintf("size=%d", diskBytes))
		}
		if err != nil {
			return errors.Join(err, c.unmount())
		}
	}
	c.disks = true
	return nil
}

func (c *cluster) unmount() error {
	if !c.disks {
		return nil
	}
	for _, n := range c.nodes {
		_ = syscall.Unmount(c.disk(n), syscall.MNT_DETACH)
	}
	return nil
}

// fillDisk leaves a node no room to save its counters, for some seconds. It goes on deciding.
func (r *run) fillDisk(f *judge.Fault) error {
	n := r.victims(f, 1)[0]
	name := filepath.Join(r.cluster.disk(n), "junk")
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	for err == nil {
		_, err = file.Write(chunk)
	}
	var full *fs.PathError
	if !errors.As(err, &full) || !errors.Is(full, syscall.ENOSPC) {
		return errors.Join(err, file.Close())
	}
	r.rest(1000, 6000)
	return errors.Join(file.Close(), os.Remove(name))
}
