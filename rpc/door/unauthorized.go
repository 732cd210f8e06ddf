package door

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/rpc/access"
)

// Unauthorized counts the requests that a door has refused because their clients are unknown, or
// lack a right, and says in the log that there are some. Nothing of a credential is in either. A
// nil *Unauthorized counts nothing.
type Unauthorized struct {
	door               string
	unknown, forbidden atomic.Uint64
	told               seldom
}

// seldom lets a line be logged at once, and then every refusalsLogged at most.
type seldom struct {
	mu     sync.Mutex // guards below
	logged time.Time
	since  uint64 // events by then
}

// due reports whether the line is to be logged now, when there were n events in all, and how many
// of them came since the one before.
func (s *seldom) due(n uint64) (more uint64, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if n <= s.since || now.Sub(s.logged) < refusalsLogged {
		return 0, false
	}
	more, s.logged, s.since = n-s.since, now, n
	return more, true
}

// Unauthorized is that of a door, the same one for each name. Without metrics nobody sees it.
func (m *Metrics) Unauthorized(door string) *Unauthorized {
	if m == nil {
		return &Unauthorized{door: door}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := m.unauthorized[door]; u != nil {
		return u
	}
	u := &Unauthorized{door: door}
	m.unauthorized[door] = u
	for reason, n := range map[string]*atomic.Uint64{
		"unknown": &u.unknown, "forbidden": &u.forbidden,
	} {
		m.Counter("unauthorized", "Requests that a door has refused because they had no "+
			"credential of this node's clients (unknown), or one without the right (forbidden).",
			prometheus.Labels{"door": door, "reason": reason}, n.Load)
	}
	return u
}

// Note counts err if it says that a client is unknown, or lacks a right. from is its address.
func (u *Unauthorized) Note(err error, from string) {
	var denied *access.Denied
	switch {
	case errors.As(err, &denied):
		u.Forbidden(from)
	case errors.Is(err, access.ErrUnknown):
		u.Unknown(from)
	}
}

// NoteCall is Note for a call over gRPC.
func (u *Unauthorized) NoteCall(ctx context.Context, err error) {
	if IsAccess(err) {
		u.Note(err, addressOf(ctx))
	}
}

// Unknown counts a request from that address without a credential of a client.
func (u *Unauthorized) Unknown(from string) {
	if u != nil {
		u.unknown.Add(1)
		u.tell(from)
	}
}

// Forbidden counts a request from that address of a client without the right to it.
func (u *Unauthorized) Forbidden(from string) {
	if u != nil {
		u.forbidden.Add(1)
		u.tell(from)
	}
}

func (u *Unauthorized) tell(from string) {
	unknown, forbidden := u.unknown.Load(), u.forbidden.Load()
	if more, due := u.told.due(unknown + forbidden); due {
		slog.Warn("requests are refused: their clients are unknown, or lack a right",
			"door", u.door, "refused", more, "last_from", from, "unknown_in_all", unknown,
			"forbidden_in_all", forbidden)
	}
}
