package web

import (
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
)

// operating are requests for pages with long answers, some of which the gate lets in also when
// there are too many requests. A client may send many over many connections and read none of the
// answers. So when there are as many as there may be, the one that is sent for longest is given up,
// and the next one waits until that has ended.
type operating struct {
	slots chan struct{} // has one of each request

	mu    sync.Mutex // guards below
	since []*http.ResponseController
}

func newOperating(most int) *operating { return &operating{slots: make(chan struct{}, most)} }

// answered is answered for a page that is bounded.
func (o *operating) answered(
	h func(http.ResponseWriter, *http.Request) (any, error),
) http.HandlerFunc {
	return o.bounded(answered(h))
}

// bounded has h answer so many requests at once.
func (o *operating) bounded(h http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		select {
		case o.slots <- struct{}{}:
		default:
			o.giveUp()
			select {
			case o.slots <- struct{}{}:
			case <-r.Context().Done():
				return
			}
		}
		defer func() { <-o.slots }()
		answer := http.NewResponseController(rw)
		o.mu.Lock()
		o.since = append(o.since, answer)
		o.mu.Unlock()
		defer o.end(answer)
		h(rw, r)
	}
}

func (o *operating) end(answer *http.ResponseController) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.since, answer); i >= 0 {
		o.since = slices.Delete(o.since, i, i+1)
	}
}

// giveUp has the answer that is sent for longest fail at its next writing, or the one under way.
func (o *operating) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.since) > 0 {
		_ = o.since[0].SetWriteDeadline(time.Unix(1, 0)) // else the server's own ends it
		o.since = slices.Delete(o.since, 0, 1)
	}
}
