package wire

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// Buffers is the memory that messages are read into and written from. gRPC's own pool clears all
// that a buffer has room for whenever it is used again, a megabyte for a message of 33 kilobytes.
// Nobody here, and nobody in gRPC, reads what they have not written.
var Buffers mem.BufferPool = new(bufferPool)

// bufferPool has a pool for each power of two from 1<<minBuffer to 1<<maxBuffer; what is larger is
// made anew.
type bufferPool [maxBuffer - minBuffer + 1]sync.Pool

const (
	minBuffer = 8
	maxBuffer = 21
)

// Get returns a buffer of that length, with anything in it.
func (p *bufferPool) Get(length int) *[]byte {
	size := max(bits.Len(uint(max(length, 1)-1)), minBuffer)
	if size > maxBuffer {
		b := make([]byte, length)
		return &b
	}
	if b, ok := p[size-minBuffer].Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<size)
	return &b
}

// Put takes a buffer back.
func (p *bufferPool) Put(b *[]byte) {
	if size := bits.Len(uint(cap(*b))) - 1; size >= minBuffer && size <= maxBuffer {
		p[size-minBuffer].Put(b)
	}
}
