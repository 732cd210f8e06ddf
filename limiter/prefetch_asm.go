//go:build amd64 || arm64

package limiter

import "unsafe"

// prefetch has the processor fetch four cache lines from p on, without waiting for them. It reads
// nothing: p need not be valid, and other goroutines may write there.
//
//go:noescape
func prefetch(p unsafe.Pointer)
