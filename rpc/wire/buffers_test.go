package wire

import "testing"

// TestBuffers: whatever was given back, a buffer has the length that is asked for.
func TestBuffers(t *testing.T) {
	var p bufferPool
	for range 3 {
		for _, length := range []int{
			0, 1, 255, 256, 257, 4096, 5000, 1<<maxBuffer - 1, 1 << maxBuffer, 1<<maxBuffer + 1,
		} {
			for _, given := range []int{0, 1, 255, 256, 300, 1 << 13, 1<<maxBuffer + 5} {
				b := make([]byte, given/2, given)
				p.Put(&b)
			}
			b := p.Get(length)
			if len(*b) != length {
				t.Fatalf("asked for %d bytes, got %d", length, len(*b))
			}
			p.Put(b)
		}
	}
}
