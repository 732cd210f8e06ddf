package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"penstock/cluster"
	"penstock/rpc/wire"
)

const (
	// retryMin and retryMax are the pause before a peer that could not be reached is tried again.
	// gRPC's default would leave a restarted node alone for up to two minutes.
	retryMin = 50 * time.Millisecond
	retryMax = time.Second
	// A process that is being killed takes connections on for a few milliseconds more, and drops
	// them. For dyingLasts after a good stream, a line tries for another one every dyingPause, to
	// learn whether nobody listens any more.
	dyingLasts = 100 * time.Millisecond
	dyingPause = 2 * time.Millisecond
	// greetingTimeout is how long a peer may take to name itself.
	greetingTimeout = time.Second
	// maxFrame is the size from which on a frame takes no further ask. The largest ask, 1000 items
	// with their own limits, is about 1.5 MiB, so a frame stays below the 4 MiB that the peer
	// reads.
	maxFrame = 1 << 20
	// maxReply is the most that a peer may answer at once: a frame of the smallest items, each
	// refused with a long name of its owner, is answered by some 5 MiB.
	maxReply = 16 << 20
	// maxWaiting is how much may wait for one peer, in bytes. A peer that does not read is noticed
	// by its silence long before; this bounds the memory until then.
	maxWaiting = 16 << 20
)

// line carries asks to one boot of one node, over one stream. Two goroutines keep it: run opens the
// stream, reads the answers, and opens the next when it ends; write writes what waits.
//
// Asks travel together by themselves (natural batching): a caller that posts while nothing waits
// wakes the writer, everybody else only joins. The writer lets the callers that are ready run once
// (runtime.Gosched) and then takes all that waits. There is no timer: a lone ask goes out at once,
// and while one frame is written the next one fills.
type line struct {
	config  *LinesConfig
	stats   *Stats
	letters *sync.Pool // of used ones
	to      lineTo
	role    cluster.Role // as gossip has it
	conn    *grpc.ClientConn
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	ended   chan struct{} // closed when run has returned
	wake    chan struct{} // holds a token if something waits
	refused atomic.Bool   // nobody listens at the address

	// Of run and of what it calls.
	memo  lineageMemo
	met   greeting // the other end of the stream
	agent bool     // … by its certificate

	// held while asks are written down: its holder may read the Ask of a letter that was sent
	pen   sync.Mutex
	frame frameWriter
	batch []*letter

	mu      sync.Mutex // guards all below, and state and tag of every letter of this line
	waiting []*letter  // to be sent, in this order
	weight  int        // of those, in bytes, about
	sent    map[uint64]*letter
	tag     uint64 // of the last letter sent; letters are sent in the order of their tags
	// why a letter cannot be posted; nil while there is a stream, and while the first one is opened
	down error
}

// letter is one Call on its way.
type letter struct {
	line   *line
	call   *cluster.Call
	weight int
	state  letterState
	tag    uint64
	done   chan struct{} // gets a token when call is filled in
	timer  *time.Timer
}

type letterState uint8

const (
	letterWaiting letterState = iota // in line.waiting
	letterSent                       // in line.sent: perhaps the peer has it
	letterDone                       // in neither: call is filled in, or is just being filled in
	letterDropped                    // in line.waiting, but its caller has gone
)

func newLetter() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &letter{done: make(chan struct{}, 1), timer: t}
}

func (p *Lines) newLine(to lineTo, role cluster.Role) (*line, error) {
	c := &p.config
	l := &line{
		config: c, stats: &p.stats, letters: &p.letters, to: to, role: role,
		ended: make(chan struct{}), wake: make(chan struct{}, 1), sent: make(map[uint64]*letter),
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
			MinConnectTimeout: time.Second,
		}),
		// Finds a network that swallows everything, within two seconds if data is under way
		// (TCP_USER_TIMEOUT). It does not find a peer that hangs; the deadlines of the calls do.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 2 * time.Second, PermitWithoutStream: true,
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

// dial connects, and notes whether the machine says that nobody listens there. A process that is
// dying may still take a connection on and drop it; then gRPC dials again while run waits for the
// stream, and callers hear from here that the peer is gone.
func (l *line) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	refused := errors.Is(err, syscall.ECONNREFUSED)
	l.refused.Store(refused)
	l.mu.Lock()
	if refused && l.down != nil && !errors.Is(l.down, cluster.ErrGone) {
		l.down = fmt.Errorf("%w: %w", cluster.ErrGone, l.down)
	}
	l.mu.Unlock()
	return conn, err
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
	alone := len(l.waiting) == 1
	l.mu.Unlock()

	if err != nil {
		c.Err = err
		lt.release()
		return nil
	}
	if alone {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return lt
}

// await returns when the letter's call is filled in, at its deadline at the latest.
func (lt *letter) await() {
	lt.timer.Reset(time.Duration(lt.call.Deadline - lt.line.config.Clock.Now()))
	select {
	case <-lt.done:
		lt.timer.Stop()
		lt.release()
	case <-lt.timer.C:
		lt.giveUp()
	}
}

// giveUp fills the call in at its deadline.
func (lt *letter) giveUp() {
	l := lt.line
	l.mu.Lock()
	state := lt.state
	switch state {
	case letterWaiting:
		lt.state = letterDropped // the writer throws it away; nobody else may have it until then
		l.stats.Expired.Add(1)
	case letterSent:
		delete(l.sent, lt.tag)
	}
	l.mu.Unlock()
	switch state {
	case letterWaiting:
		lt.call.Err = fmt.Errorf("%w: the deadline came before the line to peer %s was free",
			cluster.ErrUnsent, l.to.id)
		lt.call = nil
	case letterSent:
		l.pen.Lock() // the writer may be reading the Ask at this moment
		l.pen.Unlock()
		lt.call.Err = fmt.Errorf("no answer from peer %s before the deadline", l.to.id)
		lt.release()
	default:
		<-lt.done // the answer came at the last moment
		lt.release()
	}
}

// release gives lt back for the next call. Nobody else may hold it.
func (lt *letter) release() {
	pool := lt.line.letters
	lt.call, lt.line = nil, nil
	pool.Put(lt)
}

// finish fills the call in and lets its caller go on. The letter must have been claimed.
func (lt *letter) finish(a *cluster.Answer, err error) {
	lt.call.Answer, lt.call.Err = a, err
	lt.done <- struct{}{}
}

// claim takes the letter with tag out of the sent ones. Nil: its caller has given up.
func (l *line) claim(tag uint64) *letter {
	l.mu.Lock()
	defer l.mu.Unlock()
	lt := l.sent[tag]
	if lt != nil {
		delete(l.sent, tag)
		lt.state = letterDone
	}
	return lt
}

// run keeps a stream open as long as the line is.
func (l *line) run() {
	defer close(l.ended)
	var ended time.Time // of the last good stream
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		opened := time.Now()
		greeted, err := l.converse()
		if l.ctx.Err() != nil {
			l.fail(fmt.Errorf("%w: the line to peer %s is closed", cluster.ErrUnsent, l.to.id))
			return
		}
		if greeted {
			pause = retryMin
			if time.Since(opened) > retryMax {
				// it was a good stream: try for another one before anybody is told
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

// converse opens a stream and serves it to its end. greeted says that the peer was there.
func (l *line) converse() (greeted bool, err error) {
	ctx, hangUp := context.WithCancel(l.ctx)
	defer hangUp()
	stream, err := l.open(ctx, hangUp)
	if err != nil {
		return false, err
	}
	l.stats.Streams.Add(1)
	l.mu.Lock()
	again := l.down != nil
	l.down = nil
	l.mu.Unlock()
	if again && l.to.boot != 0 {
		l.config.Logger.Info("peer is back", "peer", l.to.id, "address", l.to.addr)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.write(ctx, stream)
	}()
	err = l.read(stream)
	hangUp()
	<-written
	l.hungUp(stream.Trailer(), err)
	return true, err
}

// open opens a stream to the node and boot that the line is for. It does not wait for a peer that
// cannot be reached, except when callers know already that they cannot.
func (l *line) open(ctx context.Context, hangUp func()) (grpc.ClientStream, error) {
	l.mu.Lock()
	patient := l.down != nil
	l.mu.Unlock()
	me := greeting{l.config.Cluster, l.config.ID, l.config.Boot}
	stream, err := l.conn.NewStream(metadata.NewOutgoingContext(ctx, me.metadata()),
		&grpc.StreamDesc{
			ClientStreams: true, ServerStreams: true,
		}, exchangeMethod, grpc.WaitForReady(patient))
	if err != nil {
		return nil, err
	}
	timeout := time.AfterFunc(greetingTimeout, hangUp)
	if err = l.meet(stream); !timeout.Stop() {
		err = fmt.Errorf("it does not say who it is within %v", greetingTimeout)
	}
	return stream, err
}

// meet reads which node answers on stream, and says what is wrong with them.
func (l *line) meet(stream grpc.ClientStream) error {
	header, err := stream.Header()
	if err != nil {
		return explainProtocol(err)
	}
	g, version, ok := readGreeting(header)
	switch {
	case !ok || g.cluster != l.config.Cluster: // it refuses this node too, and says why
		if err := stream.RecvMsg(&wire.Message{}); err != nil {
			return explainProtocol(err)
		}
		return fmt.Errorf("it names cluster %q and protocol %q, this node %q and %q", g.cluster,
			version, l.config.Cluster, protocol)
	case l.to.id != "" && g.node != l.to.id || l.to.boot != 0 && g.boot != l.to.boot:
		return fmt.Errorf("%w: another node answers there: %s, boot %016x, instead of %s, boot "+
			"%016x", cluster.ErrGone, g.node, g.boot, l.to.id, l.to.boot)
	}
	l.met, l.agent = g, false
	if id := shown(stream.Context()); id != nil {
		l.agent = !id.is(cluster.RoleMember)
		return id.check(g.node, l.role)
	}
	return nil
}

// write writes what waits until the stream ends.
func (l *line) write(ctx context.Context, stream grpc.ClientStream) {
	for {
		runtime.Gosched()
		for first, last := l.take(); first <= last; first, last = l.take() {
			// SendMsg fails only before gRPC has taken the frame over: what is in it then is surely
			// unsent.
			if err := stream.SendMsg(&l.frame.buf); err != nil {
				l.unsent(first, last, err)
				return // the reader learns the reason
			}
			runtime.Gosched()
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
	}
}

// take writes waiting letters down in l.frame and counts them as sent. It returns their tags, none
// if first > last.
func (l *line) take() (first, last uint64) {
	now := l.config.Clock.Now()
	l.pen.Lock()
	defer l.pen.Unlock()
	l.frame.reset()
	l.batch = l.batch[:0]

	l.mu.Lock()
	first = l.tag + 1
	size, n := 0, 0
	for ; n < len(l.waiting) && size < maxFrame; n++ {
		lt := l.waiting[n]
		l.weight -= lt.weight
		if lt.state == letterDropped || lt.call.Deadline <= now {
			// expired: its caller finds it waiting, and gives up
			if lt.state == letterWaiting {
				lt.state = letterDone
				l.stats.Expired.Add(1)
				lt.finish(nil, fmt.Errorf("%w: the deadline came before the line to peer %s was "+
					"free", cluster.ErrUnsent, l.to.id))
			}
			continue
		}
		l.tag++
		lt.tag, lt.state = l.tag, letterSent
		l.sent[l.tag] = lt
		l.batch = append(l.batch, lt)
		size += lt.weight
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	last = l.tag
	l.mu.Unlock()

	for i, lt := range l.batch {
		l.frame.add(first+uint64(i), lt.call.Ask, int64(lt.call.Deadline-now))
		l.stats.count(lt.call.Ask)
	}
	clear(l.batch)
	if len(l.batch) > 0 {
		l.stats.Asks.Add(uint64(len(l.batch)))
		l.stats.Frames.Add(1)
	}
	return first, last
}

// unsent fails the letters first … last.
func (l *line) unsent(first, last uint64, err error) {
	for tag := first; tag <= last; tag++ {
		if lt := l.claim(tag); lt != nil {
			lt.finish(nil, fmt.Errorf("%w, %w: the stream to peer %s: %w", cluster.ErrUnsent,
				cluster.ErrBroken, l.to.id, err))
		}
	}
}

// read hands answers to their callers until the stream ends.
func (l *line) read(stream grpc.ClientStream) error {
	for {
		var m wire.Message
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
		err := eachAnswer(m.Bytes(), l.deliver)
		m.Free()
		if err != nil {
			return fmt.Errorf("a reply of peer %s %w", l.to.id, err)
		}
	}
}

// deliver hands one answer to its caller.
func (l *line) deliver(tag uint64, b []byte) {
	lt := l.claim(tag)
	if lt == nil {
		return
	}
	a, refusal, err := readAnswer(b, len(lt.call.Ask.Items), &l.memo)
	if err == nil && a.Words != nil {
		if reason := a.Words.Forged(l.met.node, l.met.boot, l.agent); reason != "" {
			err = fmt.Errorf("has words that are forged: %s", reason)
		}
	}
	switch {
	case err != nil:
		lt.finish(nil, fmt.Errorf("an answer of peer %s %w", l.to.id, err))
	case refusal != "":
		lt.finish(nil, fmt.Errorf("%w: peer %s cannot read it: %s", cluster.ErrUnsent, l.to.id,
			refusal))
	default:
		lt.finish(a, nil)
	}
}

// hungUp fails all letters that were sent on a stream that has ended. If the peer said how far it
// got, what came later was not touched.
func (l *line) hungUp(trailer metadata.MD, err error) {
	served, unknown := strconv.ParseUint(first(trailer, servedKey), 10, 64)
	l.mu.Lock()
	lost := make([]*letter, 0, len(l.sent))
	for _, lt := range l.sent {
		lt.state = letterDone
		lost = append(lost, lt)
	}
	clear(l.sent)
	l.mu.Unlock()
	for _, lt := range lost {
		if unknown == nil && lt.tag > served {
			lt.finish(nil, fmt.Errorf("%w, %w: peer %s ended the stream before it came to this "+
				"ask: %w", cluster.ErrUnsent, cluster.ErrBroken, l.to.id, err))
		} else {
			lt.finish(nil, fmt.Errorf("%w: the stream to peer %s ended before it answered: %w",
				cluster.ErrBroken, l.to.id, err))
		}
	}
}
