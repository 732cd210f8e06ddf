//go:build !linux || race

package door

import "net"

// Brisk is c here.
func Brisk(c net.Conn) net.Conn { return c }
