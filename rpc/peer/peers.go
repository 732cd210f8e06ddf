package peer

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/clock"
	"penstock/rpc/door"
)

// LinesConfig makes Lines. ID, Boot, Cluster and Clock are required.
type LinesConfig struct {
	ID      string       // of this node
	Boot    uint64       // of this node
	Cluster string       // name of the cluster; nodes of another one refuse
	Clock   *clock.Clock // the node's
	TLS     *tls.Config  // nil: plaintext. See ClientTLS
	Logger  *slog.Logger // default slog.Default
	// Renewed is TLS for the next connection, where it may change (TLSFiles.Caller). nil: as TLS.
	Renewed func() *tls.Config
	Trace   Tracer // makes spans of asks; nil: there are none
}

// Tracer makes spans of asks that are parts of traces (package trace).
type Tracer interface {
	// Asks begins a span for each call; done ends them.
	Asks(calls []cluster.Call) (done func())
	// Answers begins a span for an ask of another node; done ends it.
	Answers(a *cluster.Ask, asker string) (done func())
}

// Lines is a node's hand to other nodes (cluster.Network): a line to each. All methods
// are safe for concurrent use.
type Lines struct {
	config  LinesConfig
	stats   Stats
	letters sync.Pool // of *letter
	seconds prometheus.Histogram

	mu     sync.Mutex // guards closed, and makes changes of lines one at a time
	closed bool
	there  map[lineTo]bool                  // told by Keep
	lines  atomic.Pointer[map[lineTo]*line] // never changed, only replaced
}

// IsHost reports whether other nodes can be told to dial host, which has no port. A name is looked
// up later.
func IsHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && !ip.IsUnspecified() || err != nil && !strings.ContainsAny(host, ":/[] ")
}

// lineTo says where a line ends. Another boot of a node is another end: it has lost the memory of
// the one before. Without a boot any boot of the id is meant, and without an id any node of the
// cluster that listens at the address.
type lineTo struct {
	id, addr string
	boot     uint64
}

// Stats counts since the start.
type Stats struct {
	Asks     atomic.Uint64 // written to peers
	Words    atomic.Uint64 // asks that carried words about ownership
	Moves    atomic.Uint64 // asks that carried a message about partitions, or a sign of life
	Frames   atomic.Uint64 // that carried asks
	Streams  atomic.Uint64 // opened
	Expired  atomic.Uint64 // asks dropped unsent because their deadline came while they waited
	Overflow atomic.Uint64 // asks refused because too much waited already
}

// count counts an ask that is written by what it carries besides checks.
func (s *Stats) count(a *cluster.Ask) {
	if a.Words != nil {
		s.Words.Add(1)
	}
	if a.Move != nil {
		s.Moves.Add(1)
	}
}

// NewLines makes the hand; lines are made when they are needed, or by Keep. Close ends it.
func NewLines(c LinesConfig) *Lines {
	if c.Clock == nil {
		panic("rpc: PeersConfig.Clock is missing; give it the node's Clock")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	p := &Lines{
		config: c, letters: sync.Pool{New: newLetter},
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "penstock_peer_request_duration_seconds",
			Help: "Time that a request for checks of other nodes takes; those of several " +
				"owners are asked at once.",
			Buckets: door.SecondsBuckets,
		}),
	}
	p.lines.Store(&map[lineTo]*line{})
	return p
}

// Stats are the counters; they are read while they change.
func (p *Lines) Stats() *Stats { return &p.stats }

// Call carries each Ask to its peer, all at once, and returns when each Call has its Answer or its
// Err, at the latest when the last of their deadlines comes. See cluster.Network.
func (p *Lines) Call(calls []cluster.Call) {
	if len(calls) > 0 && calls[0].Ask != nil && calls[0].Ask.Move == nil {
		defer door.Took(p.seconds, time.Now())
	}
	if p.config.Trace != nil {
		defer p.config.Trace.Asks(calls)()
	}
	var few [8]*letter
	sent := few[:0]
	for i := range calls {
		c := &calls[i]
		l, err := p.line(c.To)
		if err != nil {
			c.Err = err
			continue
		}
		if lt := l.post(c); lt != nil {
			sent = append(sent, lt)
		}
	}
	for _, lt := range sent {
		if lt.alone {
			lt.line.start()
		}
	}
	for _, lt := range sent {
		lt.await()
	}
	for i := range calls {
		if calls[i].Once {
			p.forget(calls[i].To)
		}
	}
}

// forget closes the line to m, unless m is one that there is (Keep).
func (p *Lines) forget(m cluster.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := lineTo{m.ID, m.PeerAddr, m.Boot}
	if !p.there[to] {
		p.dropLocked(func(other lineTo) bool { return other == to })
	}
}

// Answers asks whether that very boot of a node is there: nil if it answers, an error that wraps
// cluster.ErrGone if nobody listens at its address, or another one does. Its time is bounded by
// ctx.
func (p *Lines) Answers(ctx context.Context, m cluster.Member) error {
	until := p.config.Clock.Now().Add(time.Second)
	if d, ok := ctx.Deadline(); ok {
		until = p.config.Clock.Now().Add(time.Until(d))
	}
	sign := &cluster.Move{From: p.config.Boot, To: m.Boot, ID: p.config.ID}
	calls := []cluster.Call{
		{
			To: m, Deadline: until, Once: true, Ask: &cluster.Ask{
				Hop: 1, Deadline: until, Move: sign,
			},
		},
	}
	p.Call(calls)
	return calls[0].Err
}

// Wait returns at until. See cluster.Network.
func (p *Lines) Wait(until limiter.Instant) {
	time.Sleep(time.Duration(until - p.config.Clock.Now()))
}

// line returns the line to m, and makes it if there is none.
func (p *Lines) line(m cluster.Member) (*line, error) {
	to := lineTo{m.ID, m.PeerAddr, m.Boot}
	if l := (*p.lines.Load())[to]; l != nil {
		return l, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lineLocked(to, m.Role)
}

func (p *Lines) lineLocked(to lineTo, role cluster.Role) (*line, error) {
	lines := *p.lines.Load()
	if l := lines[to]; l != nil {
		return l, nil
	}
	if p.closed {
		return nil, fmt.Errorf("%w: this node is stopping", cluster.ErrUnsent)
	}
	l, err := p.newLine(to, role)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cluster.ErrUnsent, err)
	}
	more := maps.Clone(lines)
	more[to] = l
	p.lines.Store(&more)
	return l, nil
}

// Keep tells which nodes are there (the Members of a new View): lines to those that own keys are
// made ahead, so that the first check does not wait for one. Lines to other nodes, earlier boots
// among them, are closed. Agents are hardly ever asked anything, and there may be thousands: a line
// to one is made when it is needed. Call it before Node.SetView.
func (p *Lines) Keep(members []cluster.Member) {
	there := make(map[lineTo]bool, len(members))
	var owners []lineTo
	for _, m := range members {
		if m.ID == p.config.ID || m.PeerAddr == "" {
			continue
		}
		to := lineTo{m.ID, m.PeerAddr, m.Boot}
		if there[to] = true; m.Role == cluster.RoleMember {
			owners = append(owners, to)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for _, to := range owners {
		if _, err := p.lineLocked(to, cluster.RoleMember); err != nil {
			p.config.Logger.Warn("no line to a peer", "peer", to.id, "address", to.addr, "error",
				err)
		}
	}
	p.there = there
	p.dropLocked(func(to lineTo) bool { return !there[to] })
}

// dropLocked closes the lines that drop names.
func (p *Lines) dropLocked(drop func(lineTo) bool) {
	kept := make(map[lineTo]*line)
	var dropped []*line
	for to, l := range *p.lines.Load() {
		if drop(to) {
			dropped = append(dropped, l)
		} else {
			kept[to] = l
		}
	}
	p.lines.Store(&kept)
	for _, l := range dropped {
		l.close()
	}
}

// Close closes all lines. Calls under way get an Err, later ones too.
func (p *Lines) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.dropLocked(func(lineTo) bool { return true })
}
