package peer

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"penstock/cluster"
)

// converse opens a carrier and uses it to its end. greeted says that the peer was there, and
// answered that it was of use.
func (l *line) converse() (greeted, answered bool, err error) {
	ctx, hangUp := context.WithCancel(l.ctx)
	defer hangUp()
	c, err := l.open(ctx, hangUp)
	if err != nil {
		return false, false, err
	}
	l.stats.Streams.Add(1)
	l.mu.Lock()
	again := l.down != nil
	l.down = nil
	l.reached = l.written
	l.mu.Unlock()
	l.setOut(c)
	if again && l.to.boot != 0 {
		l.config.Logger.Info("peer is back", "peer", l.to.id, "address", l.to.addr)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.write(ctx)
	}()
	err = c.receive(func(reply []byte) error { answered = true; return l.read(reply) })
	hangUp()
	<-written
	l.setOut(nil)
	l.hungUp(err)
	return true, answered, err
}

// setOut says over what frames are sent; it waits for the one that is being sent.
func (l *line) setOut(c carrier) {
	l.sending.Lock()
	l.out = c
	l.sending.Unlock()
}

// write sends what callers leave to it until the stream ends.
func (l *line) write(ctx context.Context) {
	for {
		l.sending.Lock()
		for l.sendLocked(false) {
			runtime.Gosched()
		}
		l.sending.Unlock()
		select {
		case <-l.wake:
			runtime.Gosched()
		case <-ctx.Done():
			return
		}
	}
}

// sendLocked sends one frame of what waits; if brief, no more than there is room for at a peer that
// reads nothing. It is false if nothing was sent.
func (l *line) sendLocked(brief bool) bool {
	first, last := l.take(brief)
	if first > last {
		return false
	}
	err := l.out.send(l.frame.buf)
	if err != nil {
		l.unsent(first, last, err) // the reader learns the reason
	}
	return err == nil
}

// take writes waiting letters down in l.frame and counts them as sent, if brief only as many as the
// peer has room for. It returns their tags, none if first > last.
func (l *line) take(brief bool) (first, last uint64) {
	now := l.config.Clock.Now()
	l.pen.Lock()
	defer l.pen.Unlock()
	l.frame.reset()
	l.frame.buf = roomForHead(l.frame.buf)
	l.batch = l.batch[:0]

	l.mu.Lock()
	last = l.tag.Load()
	first = last + 1
	size, n := 0, 0
	for ; n < len(l.waiting) && size < maxFrame; n++ {
		lt := l.waiting[n]
		if brief && l.written+lt.weight-l.reached > maxUnread {
			break
		}
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
		last++
		l.written += lt.weight
		lt.tag, lt.state, lt.upTo = last, letterSent, l.written
		l.sent[last] = lt
		l.batch = append(l.batch, lt)
		size += lt.weight
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	l.mu.Unlock()

	for i, lt := range l.batch {
		l.frame.add(first+uint64(i), lt.call.Ask, int64(lt.call.Deadline-now))
		l.stats.count(lt.call.Ask)
	}
	clear(l.batch)
	l.tag.Store(last)
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

// read hands the answers of a reply to their callers.
func (l *line) read(reply []byte) error {
	if err := eachAnswer(reply, l.deliver); err != nil {
		return fmt.Errorf("a reply of peer %s %w", l.to.id, err)
	}
	return nil
}

// deliver hands one answer to its caller.
func (l *line) deliver(tag uint64, b []byte) {
	if tag > l.tag.Load() {
		return // it guesses: that ask may just be being written down
	}
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
func (l *line) hungUp(err error) {
	var end *endError
	stated := errors.As(err, &end)
	l.mu.Lock()
	lost := make([]*letter, 0, len(l.sent))
	for _, lt := range l.sent {
		lt.state = letterDone
		lost = append(lost, lt)
	}
	clear(l.sent)
	l.mu.Unlock()
	for _, lt := range lost {
		if stated && lt.tag > end.served {
			lt.finish(nil, fmt.Errorf("%w, %w: peer %s ended the stream before it came to this "+
				"ask: %w", cluster.ErrUnsent, cluster.ErrBroken, l.to.id, err))
		} else {
			lt.finish(nil, fmt.Errorf("%w: the stream to peer %s ended before it answered: %w",
				cluster.ErrBroken, l.to.id, err))
		}
	}
}
