package fair

import "time"

const (
	// lookEvery is how often the room is adapted, while there are requests.
	lookEvery = 20 * time.Millisecond
	// mostWait is the wait of requests for processors that work for the process beyond which the
	// room shrinks.
	mostWait = 10 * time.Millisecond
)

// look adapts the room and the shares to how long requests wait for a processor, and returns the
// time. What is under way is what makes them wait, so the room shrinks from there.
func (g *Gate) look() time.Duration {
	now := g.now()
	if now-time.Duration(g.looked.Load()) < lookEvery {
		return now
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	since := now - time.Duration(g.looked.Load())
	if since < lookEvery {
		return now
	}
	g.looked.Store(int64(now))
	idle := since >= time.Second
	waited := g.waited()
	switch {
	case idle:
		g.room = mostRoom
	case waited.own > mostWait && g.room == mostRoom:
		// from now on all are counted; the next look knows how many there are
		g.room = mostRoom * 7 / 8
	case waited.own > mostWait:
		g.room = max(leastRoom, min(g.room, g.used)*7/8)
	default:
		g.room = min(mostRoom, g.room+g.room/16+1)
	}
	g.shares.look(now, waited)
	g.busy.Store(g.room < mostRoom || g.shares.phase != calm)
	return now
}
