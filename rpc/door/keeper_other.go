//go:build !linux

package door

import (
	"net"
	"time"
)

// SetUserTimeout does nothing here: keepalive closes the connections of clients that are gone.
func SetUserTimeout(net.Conn, time.Duration) {}

// arrived does not know here.
func arrived(net.Conn) bool { return false }
