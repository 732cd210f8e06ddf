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
const diskBytes = 32 << 20

// disk is the folder for a node's counters, on a file system of its own, which can be full.
func (c *cluster) disk(n *node) string { return filepath.Join(c.dir, n.name+"-data") }

// mount makes the disks of all nodes: on loop devices, which can be frozen, or in memory where no
// such device can be had; an error where this user may mount nothing.
func (c *cluster) mount() error {
	c.disks = true
	if c.noFreeze = c.mountAll(c.mountDevice); c.noFreeze != nil {
		return c.mountAll(c.mountMemory)
	}
	return nil
}

// mountAll makes the disks of all nodes in one way, or none.
func (c *cluster) mountAll(mount func(n *node) error) error {
	for _, n := range c.nodes {
		err := os.MkdirAll(c.disk(n), 0o700)
		if err == nil {
			err = mount(n)
		}
		if err != nil {
			return errors.Join(err, c.unmount())
		}
	}
	return nil
}

// mountDevice also tries whether the disk can be frozen.
func (c *cluster) mountDevice(n *node) error {
	image := c.disk(n) + ".image"
	err := os.WriteFile(image, nil, 0o600)
	if err == nil {
		err = os.Truncate(image, diskBytes)
	}
	if err == nil {
		err = command("mkfs.ext4", "-q", "-m", "0", image)
	}
	if err == nil {
		err = command("mount", "-o", "loop", image, c.disk(n))
	}
	if err == nil {
		err = freeze(c.disk(n))
	}
	if err == nil {
		err = thaw(c.disk(n))
	}
	return err
}

func (c *cluster) mountMemory(n *node) error {
	return syscall.Mount("penstock", c.disk(n), "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes))
}

// freeze has each write to a disk wait until thaw.
func freeze(disk string) error { return command("fsfreeze", "--freeze", disk) }

func thaw(disk string) error { return command("fsfreeze", "--unfreeze", disk) }

// thawAll ends what a run that was broken off has left: a process that waits for a frozen disk
// cannot be killed.
func (c *cluster) thawAll() {
	if !c.disks || c.noFreeze != nil {
		return
	}
	for _, n := range c.nodes {
		_ = thaw(c.disk(n)) // an error where it is not frozen
	}
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

// slowDisk has all that a node writes to its disk wait for some seconds. It goes on deciding.
func (r *run) slowDisk(f *judge.Fault) error {
	disk := r.cluster.disk(r.victims(f, 1)[0])
	if err := freeze(disk); err != nil {
		return err
	}
	r.rest(3000, 9000) // more than the 5 s after which a node saves what has changed, or less
	return thaw(disk)
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
