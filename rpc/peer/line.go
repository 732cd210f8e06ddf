package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"penstock/cluster"
	"penstock/rpc/wire"
)

const (
	// retryMin and retryMax are the pause before a peer that could not be reached is tried again.
	// gRPC's default would leave a restarted node alone for up to two minutes.
	retryMin = 50 * time.Millisecond
	retryMax = time.Second
	// A process that is being killed takes connections on for a few milliseconds more, and drops
	// them. For dyingLasts after a stream, a line tries for another one every dyingPause, to
	// learn whether nobody listens any more.
	dyingLasts = 100 * time.Millisecond
	dyingPause = 2 * time.Millisecond
	// A large process, or one on a busy machine, takes longer to die. Callers are not kept for so
	// long; but for droppedLasts, as long as its connections are dropped, a line goes on trying, so
	// that a majority that was killed is known to be gone before the right to decide runs out.
	droppedLasts = 600 * time.Millisecond
	// greetingTimeout is how long a peer may take to name itself.
	greetingTimeout = time.Second
	// maxFrame is the size from which on a frame takes no further ask. The largest ask, 1000 items
	// with their own limits, is about 1.5 MiB, so a frame stays below maxRead.
	maxFrame = 1 << 20
	// maxRead is the largest frame that a peer door reads.
	maxRead = 4 << 20
	// maxReply is the most that a peer may answer at once: a frame of the smallest items, each
	// refused with a long name of its owner, is answered by some 5 MiB.
	maxReply = 16 << 20
	// maxUnread is how much a caller may send that the peer has perhaps not read: it has room in
	// the buffers of the two sockets, so that sending does not wait.
	maxUnread = 32 << 10
	// maxWaiting is how much may wait for one peer, in bytes. A peer that does not read is noticed
	// by its silence long before; this bounds the memory until then.
	maxWaiting = 16 << 20
)

// line carries asks to one boot of one node, over a link or a stream of gRPC, here called stream.
// Two goroutines keep it: run opens the stream, reads the answers, and opens the next when it ends;
// write sends what callers leave to it.
//
// Asks travel together by themselves (natural batching): a caller that posts while nothing waits
// sends it, everybody else only joins. It lets the callers that are ready run once
// (runtime.Gosched) and then takes all that waits. There is no timer: a lone ask goes out at once,
// and while one frame is sent the next one fills. What might have to wait for the peer to read is
// left to the writer, for no caller may be kept past its deadline.
type line struct {
	config  *LinesConfig
	stats   *Stats
	letters *sync.Pool // of used ones
	to      lineTo
	role    cluster.Role     // as gossip has it
	conn    *grpc.ClientConn // for what is no ask, and for streams to earlier releases
	ctx     context.Context  // ends with close
	cancel  context.CancelFunc
	ended   chan struct{} // closed when run has returned
	wake    chan struct{} // holds a token if something waits
	refused atomic.Bool   // nobody listens at the address

	// Of run and of what it calls.
	memo  lineageMemo
	met   greeting // the other end of the stream
	agent bool     // … by its certificate

	sending sync.Mutex // held while a frame is made and sent; guards out
	out     carrier    // nil: there is no stream

	// held while asks are written down: its holder may read the Ask of a letter that was sent
	pen   sync.Mutex
	frame frameWriter
	batch []*letter

	outbox
}

// outbox is the letters of a line.
type outbox struct {
	tag atomic.Uint64 // of the last letter written down; they are sent in this order

	mu      sync.Mutex // guards all below, and state and tag of every letter
	waiting []*letter  // to be sent, in this order
	weight  int        // of those, in bytes, about
	sent    map[uint64]*letter
	written int // bytes, about, of all letters sent
	reached int // … up to the last one that the peer has answered: so much it has read
	// why a letter cannot be posted; nil while there is a stream, and while the first one is opened
	down error
}

func (p *Lines) newLine(to lineTo, role cluster.Role) (*line, error) {
	c := &p.config
	l := &line{
		config: c, stats: &p.stats, letters: &p.letters, to: to, role: role,
		ended: make(chan struct{}), wake: make(chan struct{}, 1),
		outbox: outbox{sent: make(map[uint64]*letter)},
	}
	conn, err := grpc.NewClient("passthrough:///"+to.addr,
		grpc.WithTransportCredentials(c.credentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		// a take that was perhaps charged is repeated by the cluster, under its ID, or not at all
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		experimental.WithBufferPool(wire.Buffers),
		grpc.WithContextDialer(l.dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: retryMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: retryMax,
			},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveAfter, Timeout: keepaliveWait, PermitWithoutStream: true,
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.RawCodec{}),
			grpc.MaxCallRecvMsgSize(maxReply)),
	)
	if err != nil {
		return nil, fmt.Errorf("peer %s at %q: %w", to.id, to.addr, err)
	}
	l.conn = conn
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go l.run()
	return l, nil
}

// close ends the line. What was not sent fails as unsent, the rest as unknown.
func (l *line) close() {
	l.cancel()
	<-l.ended
	l.conn.Close()
}

// post takes c in, or fills its Err in and returns nil.
func (l *line) post(c *cluster.Call) *letter {
	lt := l.letters.Get().(*letter)
	lt.line, lt.call, lt.state = l, c, letterWaiting
	lt.weight = weigh(c.Ask)

	l.mu.Lock()
	err := l.down
	if err == nil && l.weight > maxWaiting {
		err = fmt.Errorf("%w: %d bytes wait already for peer %s, which reads too slowly",
			cluster.ErrUnsent, l.weight, l.to.id)
		l.stats.Overflow.Add(1)
	}
	if err == nil {
		l.waiting = append(l.waiting, lt)
		l.weight += lt.weight
	}
	lt.alone = len(l.waiting) == 1
	l.mu.Unlock()

	if err != nil {
		c.Err = err
		lt.release()
		return nil
	}
	return lt
}

// start sends what waits, or has the writer do so.
func (l *line) start() {
	l.mu.Lock()
	brief := l.weight+l.written-l.reached <= maxUnread
	l.mu.Unlock()
	if brief && l.sending.TryLock() {
		if l.out != nil {
			runtime.Gosched() // others may add more than there is room for
			l.sendLocked(true)
		}
		l.sending.Unlock()
		l.mu.Lock()
		none := len(l.waiting) == 0
		l.mu.Unlock()
		if none {
			return
		}
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// claim takes the letter with tag out of the sent ones. Nil: its caller has given up.
func (l *line) claim(tag uint64) *letter {
	l.mu.Lock()
	defer l.mu.Unlock()
	lt := l.sent[tag]
	if lt != nil {
		delete(l.sent, tag)
		lt.state = letterDone
		l.reached = max(l.reached, lt.upTo)
	}
	return lt
}

// run keeps a stream open as long as the line is.
func (l *line) run() {
	defer close(l.ended)
	var ended time.Time // of a stream, the first in retryMax
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		began := time.Now()
		greeted, answered, err := l.converse()
		if l.ctx.Err() != nil {
			l.fail(fmt.Errorf("%w: the line to peer %s is closed", cluster.ErrUnsent, l.to.id))
			return
		}
		if answered || greeted && time.Since(began) > retryMax { // others do nothing but hang up
			pause = retryMin
			if time.Since(ended) > retryMax { // it does not end again and again
				// try for another one before anybody is told
				ended = time.Now()
				continue
			}
		}
		if l.refused.Load() && !errors.Is(err, cluster.ErrGone) {
			err = fmt.Errorf("%w: %w", cluster.ErrGone, err)
		}
		if !errors.Is(err, cluster.ErrGone) && time.Since(ended) < dyingLasts {
			l.conn.ResetConnectBackoff()
			l.rest(dyingPause)
			continue
		}
		l.fail(fmt.Errorf("%w: peer %s at %s: %w", cluster.ErrUnsent, l.to.id, l.to.addr, err))
		if !greeted && isDropped(err) && time.Since(ended) < droppedLasts {
			l.rest(dyingPause)
			continue
		}
		l.rest(pause - rand.N(pause/4))
	}
}

// rest waits d, or until the line is closed.
func (l *line) rest(d time.Duration) {
	select {
	case <-l.ctx.Done():
	case <-time.After(d):
	}
}

// fail turns away what waits, and what comes until a stream is open.
func (l *line) fail(err error) {
	l.mu.Lock()
	if l.down == nil && l.ctx.Err() == nil && l.to.boot != 0 {
		// without a boot, an address is just being tried
		l.config.Logger.Warn("peer cannot be reached", "peer", l.to.id, "address", l.to.addr,
			"reason", err)
	}
	l.down = err
	var turned []*letter
	for _, lt := range l.waiting {
		if lt.state == letterWaiting {
			lt.state = letterDone
			turned = append(turned, lt)
		}
	}
	clear(l.waiting)
	l.waiting, l.weight = l.waiting[:0], 0
	l.mu.Unlock()
	for _, lt := range turned {
		lt.finish(nil, err)
	}
}
