//go:build unix

package fair

import (
	"syscall"
	"time"
)

// processorTime is how much time processors have spent on this process; 0: it is not known.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
