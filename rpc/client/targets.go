package client

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

// targets are the doors of nodes, of which one is used: the first that can be reached, until it cannot be any more. That a
// connection breaks is gRPC's to notice; but a machine that has lost its power, or a process that is stopped, breaks
// none. So while calls wait and nothing is answered, a question is put to the node that every node answers at once, and from
// time to time anyway: one that is silent, or says that it is not ready, is left for the next target. What waits there is sent
// again elsewhere, under its ids, so it is charged once.
type targets struct {
	doors  *manual.Resolver
	health healthv1.HealthClient
	all    []resolver.Address
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	over   sync.WaitGroup

	asked, answered atomic.Uint64 // calls, and messages of the stream
	watched         atomic.Bool   // there is a goroutine that looks at these

	mu    sync.Mutex           // guards all below
	names map[string]string    // of targets, by the addresses that they were reached at
	away  map[string]time.Time // targets that were left, and until when
	using context.Context      // ends when the node in use is left
	leave context.CancelFunc
}

const (
	lookEvery  = 250 * time.Millisecond
	silentFor  = 250 * time.Millisecond // without an answer to the question
	readyEvery = 2 * time.Second        // asks a node in use whether it is ready
	awayFor    = 10 * time.Second
	unusedFor  = 5 * time.Second // ends the watch
)

var errLeft = status.Error(codes.Unavailable, "client: the node is silent, or not ready")

func newTargets(all []resolver.Address) *targets {
	t := &targets{
		doors: manual.NewBuilderWithScheme("penstock"), all: all,
		names: make(map[string]string), away: make(map[string]time.Time),
	}
	t.doors.InitialState(resolver.State{Addresses: all})
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.using, t.leave = context.WithCancel(t.ctx)
	return t
}

func (t *targets) close() {
	t.mu.Lock()
	t.cancel() // from here on no watch begins
	t.mu.Unlock()
	t.over.Wait()
}

// dial connects to a target, and notes under which address of its other end that connection is known.
func (t *targets) dial(ctx context.Context, target string) (net.Conn, error) {
	network, address := "tcp", target
	if path, found := strings.CutPrefix(target, "unix://"); found {
		network, address = "unix", path
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		t.mu.Lock()
		t.names[c.RemoteAddr().String()] = target
		t.mu.Unlock()
	}
	return c, err
}

// begin counts a call, which is over when answered counts it too.
func (t *targets) begin() {
	t.asked.Add(1)
	if len(t.all) == 1 || t.watched.Load() || !t.watched.CompareAndSwap(false, true) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() == nil {
		t.over.Go(t.watch)
	}
}

// inUse ends when the node in use is left.
func (t *targets) inUse() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.using
}

// once calls the node in use. The error is Unavailable if that is left meanwhile.
func (t *targets) once(ctx context.Context, call func(context.Context) error) error {
	using := t.inUse()
	t.begin()
	defer t.answered.Add(1)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(using, cancel)()
	err := call(inner)
	if err != nil && using.Err() != nil && ctx.Err() == nil && t.ctx.Err() == nil {
		return errLeft
	}
	return err
}

// watch looks whether what is asked is answered, as long as anything is.
func (t *targets) watch() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var asked, answered uint64 // when it looked last
	put, used := time.Now(), time.Now()
	for {
		select {
		case <-ticker.C:
		case <-t.ctx.Done():
			return
		}
		now, was := time.Now(), asked
		silent := asked > answered && t.answered.Load() == answered
		answered = t.answered.Load() // before the others: what is asked later is not missing
		asked = t.asked.Load()
		if asked != was || asked != answered {
			used = now
		}
		if silent || now.Sub(put) >= readyEvery && now.Sub(used) < readyEvery {
			t.put()
			put = now
		}
		if t.comeBack(now) && now.Sub(used) >= unusedFor {
			t.watched.Store(false)
			if t.asked.Load() == asked || !t.watched.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// put puts the question to the node in use, and leaves it for what it answers.
func (t *targets) put() {
	ctx, cancel := context.WithTimeout(t.ctx, silentFor)
	defer cancel()
	var node peer.Peer
	out, err := t.health.Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&node))
	switch {
	case node.Addr == nil: // no connection: gRPC is about to make one
	case status.Code(err) == codes.DeadlineExceeded && t.ctx.Err() == nil:
		t.avoid(node.Addr.String(), true)
	case err == nil && out.Status == healthv1.HealthCheckResponse_NOT_SERVING:
		t.avoid(node.Addr.String(), false)
	}
}

// avoid has another node used than the one at addr, one that was not left lately; if there is none, and the one at addr is silent,
// any other.
func (t *targets) avoid(addr string, silent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, found := t.names[addr]
	if !found {
		return
	}
	if silent && len(t.away) == len(t.all)-1 {
		clear(t.away)
	}
	t.away[name] = time.Now().Add(awayFor)
	if !t.offerLocked() {
		delete(t.away, name)
		return
	}
	leave := t.leave
	t.using, t.leave = context.WithCancel(t.ctx)
	leave()
}

// offerLocked has gRPC use one of the targets that are not away, and reports whether there are any. If the one in use is among
// them, it stays.
func (t *targets) offerLocked() bool {
	var there []resolver.Address
	for _, a := range t.all {
		if _, away := t.away[a.Addr]; !away {
			there = append(there, a)
		}
	}
	if len(there) == 0 {
		return false
	}
	t.doors.UpdateState(resolver.State{Addresses: there})
	return true
}

// comeBack has targets used again that were left long ago, and reports whether none is away.
func (t *targets) comeBack(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.away)
	for name, until := range t.away {
		if now.After(until) {
			delete(t.away, name)
		}
	}
	if len(t.away) < n {
		t.offerLocked()
	}
	return len(t.away) == 0
}
