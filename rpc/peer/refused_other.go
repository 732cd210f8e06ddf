//go:build !windows

package peer

import (
	"errors"
	"syscall"
)

// isRefused reports whether the machine says that nobody listens there.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
