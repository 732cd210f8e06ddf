//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"os"
	"syscall"
)

// lockForMe takes f for as long as this process lives; it fails if another one has it.
func lockForMe(f *os.File) error {
	return syscall.Flock(int(f.Fd()),
		syscall.LOCK_EX|syscall.LOCK_NB)
}
