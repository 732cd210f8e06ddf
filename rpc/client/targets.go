package client

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// targets are the doors of nodes. The first that can be reached is used until it fails. gRPC
// notices broken connections; but a machine without power, or a stopped process, breaks none. So
// while calls wait without an answer, and from time to time anyway, the node is sent a health
// check, which every node answers at once. If the node is silent or not ready, its connection is
// closed here and its address avoided for a while. The waiting takes are sent again elsewhere,
// under their ids, so they are charged once. So is a node left that answers for owners that it does
// not reach, and nothing else: it may be cut off from a cluster that another target belongs to.
type targets struct {
	names  []string
	only   bool // there is one target, and it is not a name
	health healthv1.HealthClient
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	over   sync.WaitGroup

	asked, answered atomic.Uint64 // calls, and messages of the stream
	watched         atomic.Bool   // the goroutine of watch is running
	fell, right     atomic.Bool   // what decisions since the last look were: fallbacks, others

	mu    sync.Mutex           // guards all below
	conns map[string]net.Conn  // the latest of each target
	away  map[string]time.Time // addresses, and targets that led there: avoided until then
	left  time.Time            // when a node was last left
}

const (
	lookEvery = 250 * time.Millisecond
	// cutOff is after how many looks in a row a node that decides by fallbacks alone is left.
	cutOff    = 2
	silentFor = 250 * time.Millisecond // without an answer to the health check
	// … if another node was just left; earlier takes may still be repeated after that
	// (repeatWithin)
	silentNext = 2 * silentFor
	readyEvery = 2 * time.Second // interval of the health check of a node in use
	awayFor    = 10 * time.Second
	unusedFor  = 5 * time.Second // ends the watch
	// anotherWithin is how long other targets may take to be connected to before one that was left
	// is used again.
	anotherWithin = 250 * time.Millisecond
)

var errAway = errors.New("it was silent, or not ready, a moment ago")

func newTargets(names []string) *targets {
	t := &targets{
		names: names, only: len(names) == 1 && !isName(names[0]),
		conns: make(map[string]net.Conn), away: make(map[string]time.Time),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

func (t *targets) close() {
	t.mu.Lock()
	t.cancel() // from here on no watch begins
	t.mu.Unlock()
	t.over.Wait()
}

// dial connects to the first address of a target that is not avoided. If there is none, and no
// other target can be connected to either, it connects to any.
func (t *targets) dial(ctx context.Context, target string) (net.Conn, error) {
	d := net.Dialer{ControlContext: func(_ context.Context, _, addr string,
		_ syscall.RawConn,
	) error {
		if t.avoids(addr) {
			return errAway
		}
		return nil
	}}
	network, name := place(target)
	c, err := d.DialContext(ctx, network, name)
	if errors.Is(err, errAway) && !t.another(ctx, target) {
		t.mu.Lock()
		clear(t.away)
		t.mu.Unlock()
		c, err = d.DialContext(ctx, network, name)
	}
	if err == nil {
		t.keep(target, c)
	}
	return c, err
}

// keep notes the connection of a target. A name may lead to one address after the other, so the one
// before is forgotten.
func (t *targets) keep(target string, c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[target] = c
}

// place is where a target listens.
func place(target string) (network, name string) {
	if path, found := strings.CutPrefix(target, "unix://"); found {
		return "unix", path
	}
	return "tcp", target
}

// another reports whether another target that is not avoided can be connected to.
func (t *targets) another(ctx context.Context, target string) bool {
	ctx, cancel := context.WithTimeout(ctx, anotherWithin)
	defer cancel()
	open, tried := make(chan bool), 0
	for _, other := range t.names {
		if other == target || t.avoids(other) {
			continue
		}
		tried++
		go func() {
			network, name := place(other)
			c, err := new(net.Dialer).DialContext(ctx, network, name)
			if err == nil {
				c.Close()
			}
			select {
			case open <- err == nil:
			case <-ctx.Done():
			}
		}()
	}
	for ; tried > 0; tried-- {
		select {
		case found := <-open:
			if found {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// avoids reports whether an address, or a target, was recently left.
func (t *targets) avoids(what string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.away[what])
}

// begin counts a call. The call is over when answered counts it too.
func (t *targets) begin() {
	t.asked.Add(1)
	if t.only || t.watched.Load() || !t.watched.CompareAndSwap(false, true) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() == nil {
		t.over.Go(t.watch)
	}
}

// heard notes whether a decision was that of the key's owner.
func (t *targets) heard(d *Decision) {
	how := &t.right
	if d.Degraded && d.Source == fallbackSource {
		how = &t.fell
	}
	if !how.Load() {
		how.Store(true)
	}
}

// alone reports whether all that was heard since the last look were fallbacks, for the looks-th
// time in a row; a look in which nothing was heard counts for nothing.
func (t *targets) alone(looks *int) bool {
	switch fell, right := t.fell.Swap(false), t.right.Swap(false); {
	case right:
		*looks = 0
	case fell:
		*looks++
	}
	if *looks < cutOff {
		return false
	}
	*looks = 0
	return true
}

// watch looks for unanswered calls, as long as there are calls.
func (t *targets) watch() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var asked, answered uint64 // at the last look
	put, used, fallbacks := time.Now(), time.Now(), 0
	for {
		select {
		case <-ticker.C:
		case <-t.ctx.Done():
			return
		}
		now, before := time.Now(), asked
		silent := asked > answered && t.answered.Load() == answered
		// read first, so that a call made in between is not taken for unanswered
		answered = t.answered.Load()
		asked = t.asked.Load()
		if asked != before || asked != answered {
			used = now
		}
		alone := t.alone(&fallbacks)
		if silent || alone || now.Sub(put) >= readyEvery && now.Sub(used) < readyEvery {
			t.put(alone)
			put = now
		}
		if now.Sub(used) >= unusedFor {
			t.watched.Store(false)
			if t.asked.Load() == asked || !t.watched.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// put sends the health check to the node in use, and leaves the node if the answer is missing or
// bad, or if it decides alone.
func (t *targets) put(alone bool) {
	ctx, cancel := context.WithTimeout(t.ctx, t.patience())
	defer cancel()
	var node peer.Peer
	out, err := t.health.Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&node))
	switch {
	case node.Addr == nil: // no connection: gRPC is about to make one
	case status.Code(err) == codes.DeadlineExceeded && t.ctx.Err() == nil:
		t.leave(node.Addr.String(), true)
	case err == nil && (alone || out.Status == healthv1.HealthCheckResponse_NOT_SERVING):
		t.leave(node.Addr.String(), false)
	}
}

// patience is how long an answer to the health check may take. If one node after the other is
// silent, they, or this machine, may be overloaded; changing nodes each time would only add load.
func (t *targets) patience() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.left) < awayFor {
		return silentNext
	}
	return silentFor
}

// leave breaks the connection with an address. A node that answers but is not ready is left only
// once in a while: perhaps none is ready.
func (t *targets) leave(addr string, silent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !silent && now.Before(t.away[addr]) {
		return
	}
	for target, c := range t.conns {
		if c.RemoteAddr().String() != addr {
			continue
		}
		maps.DeleteFunc(t.away, func(_ string, until time.Time) bool { return now.After(until) })
		t.away[addr], t.away[target], t.left = now.Add(awayFor), now.Add(awayFor), now
		delete(t.conns, target)
		c.Close()
	}
}

// isName reports whether a target may lead to another address the next time.
func isName(target string) bool {
	if network, _ := place(target); network == "unix" {
		return false
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err != nil
}
