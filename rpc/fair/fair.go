// Package fair decides which requests a node takes on while it has more of them than it can decide
// in time. A door asks Gate.Enter when the head of a request has come, and calls Gate.Leave when
// the request is answered. A refused request has cost next to nothing, and its client hears
// ErrOverloaded at once.
//
// Three rules decide:
//
//  1. The node has room for so many requests under way. The room shrinks while requests wait long
//     for a processor (probe.go), and grows back when they do not (room.go).
//  2. A client may have share times as many requests under way as there is room left. One greedy
//     client leaves a fifth of the room to others; the more clients are greedy, the less each has.
//     A client that asks for little is never refused on account of a greedy one.
//  3. While requests stand in line for a processor, no client gets more processor time than the
//     level at which they wait no longer (shares.go). Connections of a client that wants more are
//     read less, and those of its requests that would have to wait are refused (line.go).
package fair

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// ErrOverloaded says that a request was refused, and that nothing was charged.
var ErrOverloaded = errors.New("OVERLOADED: this node has more requests under way than it can " +
	"decide in time, or this client has its share of them; nothing was charged, " +
	"try again later or ask another node")

const (
	// share is how many requests a client may have for each that there is room left for.
	share = 4
	// always is how many requests a client may have whatever others have.
	always = 2
	// mostRoom is the room of a node while no goroutine waits. Requests that wait for a silent
	// owner are under way as well.
	mostRoom = 16 << 10
	// leastRoom keeps a node at work whatever its goroutines wait for: other programs may have the
	// processors, and some hundred callers are no overload.
	leastRoom = 2048
)

// Gate counts the requests of a node. A nil *Gate lets in every request.
type Gate struct {
	now    func() time.Duration
	waited func() wait // of a request, since the last call

	looked atomic.Int64 // when waited was last asked, a time.Duration; set under mu
	busy   atomic.Bool  // see Busy; set under mu

	mu      sync.Mutex // guards what follows
	room    int
	used    int
	clients map[string]int // requests under way, of those that have any
	shares  shares
	refused uint64
}

// Work is what a request takes, and where it came from.
type Work struct {
	Cost   time.Duration // of a processor, about
	Line   *Line         // its connection, which is read less if need be; nil: it cannot be
	Shared bool          // the connection has many requests under way at a time
}

// New makes a gate of this process.
func New() *Gate {
	began, p := time.Now(), new(probe)
	return newGate(func() time.Duration { return time.Since(began) }, p.ask)
}

func newGate(now func() time.Duration, waited func() wait) *Gate {
	return &Gate{
		now: now, waited: waited, room: mostRoom, clients: make(map[string]int),
		shares: shares{processors: float64(runtime.GOMAXPROCS(0))},
	}
}

// Fixed makes a gate with a room that stays as it is.
func Fixed(room int) *Gate {
	g := newGate(func() time.Duration { return 0 }, func() wait { return wait{} })
	g.room = room
	g.busy.Store(true)
	return g
}

// Strained makes a gate of a node that is overloaded for ever, where a client may have so much of a
// processor. While its clock stands, a client that has had its share gets no other one.
func Strained(level float64, now func() time.Duration) *Gate {
	g := newGate(now, func() wait { return wait{} })
	g.shares.phase, g.shares.level = overloaded, level
	g.shares.clients = make(map[string]*account)
	g.looked.Store(math.MaxInt64) // the next look is never due
	g.busy.Store(true)
	return g
}

// Enter counts a request of a client until Leave, or returns ErrOverloaded.
func (g *Gate) Enter(client string, w Work) error {
	if g == nil {
		return nil
	}
	now := g.look()
	v, entered := g.enter(now, client, w)
	if v != (verdict{}) {
		w.Line.obey(v, w.Shared)
	}
	if !entered {
		return ErrOverloaded
	}
	return nil
}

func (g *Gate) enter(now time.Duration, client string, w Work) (v verdict, entered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine := g.clients[client]
	full := mine >= always && mine >= share*(g.room-g.used) || g.used >= 2*mostRoom
	if !full && g.shares.phase != calm {
		v = g.shares.ask(now, client, w.Cost, w.Line.wasLate())
	}
	if full || v.refused {
		g.refused++
		return v, false
	}
	g.clients[client] = mine + 1
	g.used++
	return v, true
}

// Spend charges a client for what was done for it and cannot be refused. The connection is read
// less if need be.
func (g *Gate) Spend(client string, w Work) {
	if !g.Busy() {
		return
	}
	now := g.now()
	g.mu.Lock()
	v := g.shares.spend(now, client, w.Cost)
	g.mu.Unlock()
	w.Line.obey(v, w.Shared)
}

// Busy reports whether requests wait for a processor, or did lately. A door for which counting is
// dear may let requests in uncounted while they do not.
func (g *Gate) Busy() bool {
	if g == nil {
		return false
	}
	g.look()
	return g.busy.Load()
}

// Leave ends a request that Enter has let in.
func (g *Gate) Leave(client string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used--
	if mine := g.clients[client] - 1; mine > 0 {
		g.clients[client] = mine
	} else {
		delete(g.clients, client)
	}
}

// Figures are the state of a gate, for metrics.
type Figures struct {
	Room, Used int
	Refused    uint64
}

// Figures returns those of now.
func (g *Gate) Figures() Figures {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Figures{g.room, g.used, g.refused}
}
