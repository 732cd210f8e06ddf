package peer

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"penstock/cluster"
	"penstock/rpc/wire"
)

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
	if err == nil {
		if reason := l.forged(lt.call.Ask, a); reason != "" {
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

// forged is why the peer cannot have answered a to ask; empty if it can. What it passes on is in
// the name of the node that the ask is for.
func (l *line) forged(ask *cluster.Ask, a *cluster.Answer) string {
	w := a.Words
	switch {
	case a.Passed && ask.For == 0:
		return "it passes on what nobody has asked it to"
	case w == nil:
		return ""
	case a.Passed:
		return w.Forged(w.ID, ask.For, false)
	}
	return w.Forged(l.met.node, l.met.boot, l.agent)
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
