//go:build race

package door

import "syscall"

// ReadSocket is syscall.Read here.
func ReadSocket(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }
