package peer

import (
	"fmt"
	"time"

	"penstock/cluster"
)

// letter is one Call on its way.
type letter struct {
	line   *line
	call   *cluster.Call
	weight int
	alone  bool // nothing waited when it was posted: its caller starts the line
	state  letterState
	tag    uint64
	upTo   int           // bytes, about, of all letters sent on the line up to this one
	done   chan struct{} // gets a token when call is filled in
	timer  *time.Timer
}

// letterState is where a letter is.
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
