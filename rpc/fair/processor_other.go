//go:build !unix

package fair

import "time"

// processorTime is not known here: all time counts as the process's own.
func processorTime() time.Duration { return 0 }
