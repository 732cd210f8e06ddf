package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"penstock/rpc/access"
	"penstock/rpc/door"
	"penstock/rpc/overview"
	"penstock/rpc/page"
)

// timeSkew is how far this node's wall clock is ahead of another one's.
type timeSkew = time.Duration

const (
	// fewestPages may be open at one node, however little memory it has, and one for each
	// bytesOfPage of its budget beyond.
	fewestPages = 32
	bytesOfPage = 2 << 20
	// drainLook is how often a stream looks whether its node is leaving.
	drainLook = 200 * time.Millisecond
	// sendWithin bounds how slowly a browser may read.
	sendWithin = 5 * time.Second
)

// streams counts the pages that are open, by client.
type streams struct {
	mu   sync.Mutex // guards what follows
	open int
	by   map[string]int
}

// begin counts a page of a client, or says why it may have no further one. A client may have as
// many as there is room left for, so that one that is greedy leaves some to others.
func (s *streams) begin(client string, most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine := s.by[client]; mine >= most-s.open {
		return &door.Fault{
			Status: http.StatusTooManyRequests, Type: door.Overloaded,
			Text: fmt.Sprintf("page: %d of %d pages are open at this node, %d of them by this "+
				"client; close one, or open one at another node", s.open, most, mine),
		}
	}
	if s.by == nil {
		s.by = make(map[string]int)
	}
	s.by[client]++
	s.open++
	return nil
}

func (s *streams) end(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.by[client]--; s.by[client] == 0 {
		delete(s.by, client)
	}
}

// watch is GET /v1/cluster/watch?span=: server-sent events. They are "rows" (counts: first
// all of the span, then what is new), "state" (nodes), "events" (what is new), once a second, and
// "leaving" as the last one of a node that leaves.
func (p *clusterPages) watch(rw http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r, "span")
	rough := q["span"] == "1h"
	if err == nil && q["span"] != "" && q["span"] != "5m" && !rough {
		err = queryFault("span", "%.40q is neither 5m nor 1h", q["span"])
	}
	if err != nil {
		page.Error(rw, err)
		return
	}
	client := p.proxies.caller(r).Name()
	if err := p.streams.begin(client, p.mostPages()); err != nil {
		page.Error(rw, err)
		return
	}
	defer p.streams.end(client)
	if r.Method == http.MethodHead {
		rw.Header().Set("Content-Type", "text/event-stream")
		return
	}
	s := &stream{
		clusterPages: p, out: http.NewResponseController(rw), rw: rw, rough: rough,
		told: map[string]int{},
	}
	if s.out.SetReadDeadline(time.Time{}) != nil {
		page.Fault(rw, door.Fault{
			Status: http.StatusInternalServerError, Text: "page: this connection cannot stream",
		})
		return
	}
	h := rw.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would collect it
	done := p.overview.Watch(r.Context())
	defer done()
	s.run(r)
}

// mostPages is how many pages may be open at this node.
func (p *clusterPages) mostPages() int {
	return max(fewestPages, int(p.node.Table().Stats().Budget/bytesOfPage))
}

// stream is an open page.
type stream struct {
	*clusterPages
	rw    http.ResponseWriter
	out   *http.ResponseController
	rough bool
	from  int64          // of the rows that come next
	told  map[string]int // events, by key, as they were when they were told
}

// run sends until the page is closed, its client loses its right, or the node leaves.
func (s *stream) run(r *http.Request) {
	look := time.NewTicker(drainLook)
	defer look.Stop()
	ticket := access.Of(r.Context())
	for next := s.overview.Now(); ; {
		if now := s.overview.Now(); !now.Before(next) {
			next = next.Add(overview.GatherEvery)
			if next.Before(now) {
				next = now // it was stopped for a while
			}
			if ticket.May(access.Read) != nil || s.sendAll(now) != nil {
				return
			}
		}
		select {
		case <-look.C:
		case <-r.Context().Done():
			return
		}
		if s.draining() {
			_ = s.send("leaving", map[string]any{"others": s.others()})
			return
		}
	}
}

// others are the pages of other members.
func (s *stream) others() []string {
	out := []string{}
	v := s.node.View()
	if v == nil {
		return out
	}
	for i, m := range v.Members {
		if i != v.Self && m.HTTPAddr != "" {
			out = append(out, m.HTTPAddr)
		}
	}
	return out
}

func (s *stream) sendAll(now time.Time) error {
	rows := s.overview.Rows(s.from, s.rough)
	if err := s.send("rows", rows); err != nil {
		return err
	}
	if n := int64(len(rows.Rows)); n > 0 {
		s.from = rows.From + (n-overview.Overlap)*rows.Step
	}
	if err := s.send("state", s.overview.State(now, s.version)); err != nil {
		return err
	}
	fresh := []overview.Happening{}
	for _, h := range s.overview.Happenings() {
		if told, known := s.told[h.Key]; !known || told != h.Version() {
			s.told[h.Key] = h.Version()
			fresh = append(fresh, h)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return s.send("events", fresh)
}

// send sends one event.
func (s *stream) send(kind string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := s.out.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.rw, "event: %s\ndata: %s\n\n", kind, text); err != nil {
		return err
	}
	return s.out.Flush()
}
