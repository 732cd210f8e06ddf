package web

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// mostOperating is how many requests for metrics and status are answered at once: such an
	// answer takes some hundred KiB while it is being made and sent.
	mostOperating = 32
	// mostLists is how many requests for lists, as of keys, holds, limits and changes, are answered
	// at once: of a thousand long keys that is a megabyte.
	mostLists = 16
	// mostProfiles is how many profiles are taken at once.
	mostProfiles = 4
	// mostUnread is how many bytes of answers are being sent at once, at each of the three.
	mostUnread = 8 << 20
	// operatingShare is how many answers a client may have under way for each that there is room
	// left for.
	operatingShare = 3
	// operatingWait is how long a request waits until others are answered.
	operatingWait = 4 * time.Second
	// refusedHeld is how long the connection of a refused request stays open, while nothing of it
	// is read. If it was closed at once, a client that does not listen would come back at once.
	refusedHeld = 4 * time.Second
	// crowdedTimeout is how long an answer is sent while others wait.
	crowdedTimeout = time.Second
)

// operating are requests for pages with long answers. The gate counts what it takes to make them,
// and not how much of them is unread: a client may send many over many connections and read none of
// the answers. So when there are as many as there may be, or as the client may have, the next one
// waits for an end, and the answer that is sent for longest is given up: of that client's, or if it
// has none and there is no room at all, of all. An answer that is still being made is not: that
// would end no work, and its client may well read it. As many of a client may wait as may be
// answered; further ones are refused.
type operating struct {
	most int
	name func(*http.Request) string // of the client

	mu      sync.Mutex // guards what follows
	under   []*operation
	unread  int // bytes of answers that are being sent
	waiting []*operation
}

// operation is a request and the writer of its answer.
type operation struct {
	http.ResponseWriter
	of     *operating
	client string
	begun  chan struct{} // closed when it is under way
	made   bool          // the answer, of which the first bytes were written

	sending bool // and not given up; of's mu guards it and size
	size    int  // of what was first written
}

func newOperating(most int, name func(*http.Request) string) *operating {
	return &operating{most: most, name: name}
}

// answered is answered for a page that is bounded.
func (o *operating) answered(
	h func(http.ResponseWriter, *http.Request) (any, error),
) http.HandlerFunc {
	return o.bounded(answered(h))
}

// bounded has h answer so many requests at once.
func (o *operating) bounded(h http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		n := &operation{
			ResponseWriter: rw, of: o, client: o.name(r), begun: make(chan struct{}),
		}
		if !o.ask(n) {
			refuse(rw, r)
			return
		}
		defer o.end(n)
		patience := time.NewTimer(operatingWait)
		defer patience.Stop()
		select {
		case <-n.begun:
			h(n, r)
		case <-r.Context().Done():
		case <-patience.C:
			// the client may be gone: of one that has sent more already, nothing else says so
			rw.Header().Set("Connection", "close")
			overloaded(rw, r)
		}
	}
}

// refuse answers that there is no room, and leaves the connection.
func refuse(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Connection", "close")
	overloaded(rw, r)
	on := http.NewResponseController(rw)
	_ = on.SetWriteDeadline(time.Now().Add(crowdedTimeout)) // of what was not read before
	if on.Flush() == nil {
		if conn, _, err := on.Hijack(); err == nil {
			time.AfterFunc(refusedHeld, func() { conn.Close() })
		}
	}
}

// ask begins a request, or has it wait. It reports whether there is room for that.
func (o *operating) ask(n *operation) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if count(o.waiting, n.client) >= o.most {
		return false
	}
	o.waiting = append(o.waiting, n)
	if o.beginLocked(); slices.Contains(o.waiting, n) && !o.giveUpLocked(n.client) &&
		o.lacksRoomLocked(n.client) {
		o.giveUpLocked("")
	}
	return true
}

// lacksRoomLocked reports whether it is for others that a client has to wait, and not for itself.
func (o *operating) lacksRoomLocked(client string) bool {
	return len(o.under) >= o.most && count(o.under, client) < operatingShare
}

// count is how many of a list are of a client.
func count(list []*operation, client string) (n int) {
	for _, other := range list {
		if other.client == client {
			n++
		}
	}
	return n
}

// end forgets a request, which may have waited in vain.
func (o *operating) end(n *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	same := func(other *operation) bool { return other == n }
	o.under, o.waiting = slices.DeleteFunc(o.under, same), slices.DeleteFunc(o.waiting, same)
	o.unread -= n.size
	o.beginLocked()
}

// beginLocked begins what waits and may begin.
func (o *operating) beginLocked() {
	o.waiting = slices.DeleteFunc(o.waiting, func(n *operation) bool {
		if o.fullLocked(n.client) {
			return false
		}
		o.under = append(o.under, n)
		close(n.begun)
		return true
	})
}

// fullLocked reports whether a client may have no further request under way.
func (o *operating) fullLocked(client string) bool {
	return count(o.under, client) >= operatingShare*(o.most-len(o.under))
}

// giveUpLocked gives up the answer that is sent for longest: of those to a client, or of all (""),
// and reports whether there was one.
func (o *operating) giveUpLocked(client string) bool {
	for _, n := range o.under {
		if n.sending && cmp.Or(client, n.client) == n.client {
			n.giveUpLocked()
			return true
		}
	}
	return false
}

// giveUpLocked has the answer fail at its next writing, or the one under way.
func (n *operation) giveUpLocked() {
	n.fail(time.Unix(1, 0))
	n.of.unread -= n.size
	n.sending, n.size = false, 0
}

// fail has writing fail at a time. Where it cannot, the server's own deadline does.
func (n *operation) fail(at time.Time) {
	_ = http.NewResponseController(n.ResponseWriter).SetWriteDeadline(at)
}

// Write sends a part of the answer.
func (n *operation) Write(b []byte) (int, error) {
	if !n.made {
		n.made = true
		n.of.send(n, len(b))
	}
	return n.ResponseWriter.Write(b)
}

// Unwrap is for net/http.
func (n *operation) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// send takes note that an answer is made, and that so many bytes of it are sent.
func (o *operating) send(n *operation, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.unread+size > mostUnread && (o.giveUpLocked(n.client) || o.giveUpLocked("")) {
	}
	n.sending, n.size = true, size
	o.unread += size
	if slices.ContainsFunc(o.waiting, func(other *operation) bool {
		return other.client == n.client || o.lacksRoomLocked(other.client)
	}) {
		n.fail(time.Now().Add(crowdedTimeout))
	}
}
