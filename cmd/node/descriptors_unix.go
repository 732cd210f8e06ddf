//go:build unix

package main

import "syscall"

// descriptorLimit is how many files and sockets this process may have open.
func descriptorLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return descriptorsUnknown
	}
	return int(min(uint64(l.Cur), 1<<24))
}
