//go:build !amd64 && !arm64

package limiter

import "unsafe"

// prefetch does nothing: it is not known how on this processor.
func prefetch(unsafe.Pointer) {}
