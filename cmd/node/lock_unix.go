//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// lockForMe takes f for as long as this process lives; it fails if another one has it.
func lockForMe(f *os.File) error {
	return syscall.Flock(int(f.Fd()),
		syscall.LOCK_EX|syscall.LOCK_NB)
}

// keepOwner gives f the user and the group of another file.
func keepOwner(f *os.File, of fs.FileInfo) error {
	want, known := of.Sys().(*syscall.Stat_t)
	if !known {
		return nil
	}
	if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
		return fmt.Errorf("%s belongs to another user (%d, group %d), and is left as it is: %w",
			of.Name(), want.Uid, want.Gid, err)
	}
	return nil
}
