package limiter

import (
	"runtime"
	"syscall"
	"unsafe"
)

// reserve gets n zeroed words that are the table's for as long as owner lives. They lie outside the
// Go heap: there the collector would let the process grow to twice their size before it runs. Pages
// cost nothing until they are written to.
func reserve[T any](n int, owner *T) []int64 {
	b, err := syscall.Mmap(-1, 0, n*8, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil { // no address space left, or a system that commits every page at once
		return make([]int64, n)
	}
	runtime.AddCleanup(owner, func(b []byte) { _ = syscall.Munmap(b) }, b)
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// release gives the whole pages of words, which nobody uses, back to the system. They read as zero
// afterwards, or as before.
func release(words []int64) {
	const page = 4096
	start := uintptr(unsafe.Pointer(unsafe.SliceData(words)))
	skip := int(-start&(page-1)) / 8
	if n := (len(words) - skip) * 8 / page * page; n > 0 {
		b := unsafe.Slice((*byte)(unsafe.Pointer(&words[skip])), n)
		_ = syscall.Madvise(b, syscall.MADV_DONTNEED)
	}
}
