package main

import (
	"syscall"
	"time"
)

// pause sleeps d. The runtime's own sleep is rounded up to a millisecond here, which would be most
// of the latency that a load generator measures; the system call is not.
func pause(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil) // woken early by a signal: the caller looks at the clock anyway
}
