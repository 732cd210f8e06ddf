package native

import "encoding/binary"

// frameWalk follows the frames of one direction of an HTTP/2 connection (RFC 9113, 4.1) as its
// bytes pass in pieces. It looks at headers of frames and keeps nothing of what is in them.
type frameWalk struct {
	skip  int // bytes to pass over before the next frame: of the preface
	head  [9]byte
	have  int // bytes of head
	left  int // bytes of the frame's payload that are to come; valid if have is 9
	frame frameHead
}

// frameHead is the header of a frame.
type frameHead struct {
	kind, flags byte
	stream      uint32
}

// Kinds and flags of frames.
const (
	frameData    = 0
	frameHeaders = 1
	frameReset   = 3
	framePing    = 6
	frameWindow  = 8

	flagEndStream = 1
	flagAck       = 1 // of a ping
)

// ends reports whether the sender sends nothing more on the frame's stream.
func (f frameHead) ends() bool {
	return f.kind == frameReset || (f.kind == frameData || f.kind == frameHeaders) &&
		f.flags&flagEndStream != 0
}

// walk calls begun for each frame with its header complete in b, data for each piece of a payload
// of DATA, and ended for each frame with its last byte in b.
func (w *frameWalk) walk(b []byte, to frameSink) {
	if w.skip > 0 {
		n := min(w.skip, len(b))
		w.skip, b = w.skip-n, b[n:]
	}
	for len(b) > 0 {
		if w.have < len(w.head) {
			n := copy(w.head[w.have:], b)
			w.have, b = w.have+n, b[n:]
			if w.have < len(w.head) {
				return
			}
			w.left = int(w.head[0])<<16 | int(w.head[1])<<8 | int(w.head[2])
			w.frame = frameHead{
				w.head[3], w.head[4],
				binary.BigEndian.Uint32(w.head[5:]) & (1<<31 - 1),
			}
			to.begun(w.frame)
		}
		n := min(w.left, len(b))
		if n > 0 && w.frame.kind == frameData {
			to.data(w.frame, b[:n])
		}
		w.left, b = w.left-n, b[n:]
		if w.left > 0 {
			return
		}
		w.have = 0
		to.ended(w.frame)
	}
}

// frameSink is told what a frameWalk finds.
type frameSink interface {
	begun(frameHead)
	data(f frameHead, piece []byte)
	ended(frameHead)
}
