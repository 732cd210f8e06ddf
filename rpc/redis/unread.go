package redis

import (
	"sync"
	"unsafe"
)

// mostUnread is how many bytes of replies, and of the rounds that they belong to, may wait for
// clients to read. It is for about a hundred rounds: those that are read at once are a few.
const mostUnread = 16 << 20

// roundSize is what a round takes beside its replies.
const roundSize = int64(unsafe.Sizeof(round{}))

// unread are the replies that are being written. A client that sends commands and reads nothing has
// a round wait for it until its time is over, and may have thousands of connections: when all
// together take more than there is room for, the connection that has waited longest is closed, then
// the next one.
type unread struct {
	mu      sync.Mutex // guards below
	bytes   int64
	turn    uint64
	writers map[*wire]unreadReplies
}

type unreadReplies struct {
	bytes int64
	turn  uint64 // the longer they wait, the lower
}

// begin takes note that w waits for its client to read so many bytes of replies.
func (u *unread) begin(w *wire, replies int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.writers == nil {
		u.writers = make(map[*wire]unreadReplies)
	}
	u.turn++
	u.writers[w] = unreadReplies{int64(replies) + roundSize, u.turn}
	u.bytes += u.writers[w].bytes
	for u.bytes > mostUnread {
		slowest := w
		for other, its := range u.writers {
			if its.turn < u.writers[slowest].turn {
				slowest = other
			}
		}
		u.endLocked(slowest)
		slowest.closeNow()
	}
}

// end takes note that w waits no more.
func (u *unread) end(w *wire) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endLocked(w)
}

func (u *unread) endLocked(w *wire) {
	u.bytes -= u.writers[w].bytes
	delete(u.writers, w)
}
