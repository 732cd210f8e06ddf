package peer

import (
	"errors"
	"syscall"
)

// connectionRefused is WSAECONNREFUSED of winsock2.h, which package syscall has not: its
// ECONNREFUSED is a number of its own, that no call returns.
const connectionRefused = syscall.Errno(10061)

// isRefused reports whether the machine says that nobody listens there.
func isRefused(err error) bool { return errors.Is(err, connectionRefused) }
