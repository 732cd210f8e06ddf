//go:build !linux

package clock

import "time"

// bootTime says that no clock is known here that goes on while the machine is suspended.
func bootTime() (time.Duration, bool) { return 0, false }
