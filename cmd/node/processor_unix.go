//go:build unix

package main

import (
	"syscall"
	"time"
)

// processorTime is how much time processors have spent on this process; false: it is not known.
func processorTime() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
