//go:build !linux

package door

import (
	"net"
	"time"
)

// setUserTimeout does nothing here: keepalive closes the connections of clients that are gone.
func setUserTimeout(net.Conn, time.Duration) {}

// arrived does not know here.
func arrived(net.Conn) bool { return false }
