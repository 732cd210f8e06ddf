package native

import (
	"sync/atomic"
	"time"
)

const (
	// mostControls is how many frames a connection may send that are neither data nor the head of a
	// call, as pings, settings and windows.
	mostControls = 250
	// controlsForFrame is how many more it may send for each call that it opens, and for each frame
	// of an answer: clients answer data with windows, and with pings that measure the connection.
	// For each ping of gRPC, which measures as well while a message comes, it may send one.
	controlsForFrame = 10
	// mostWindows is how many windows a connection may owe for answers that it has got. A client
	// opens a window when its program takes an answer, and programs take answers later than they
	// come: those of Python have thousands before them when a stream is long, and they open windows
	// for all of these while no frame of an answer comes.
	mostWindows = 1 << 16
	// windowWeight is about what gRPC keeps of a window.
	windowWeight = 64
	// controlsAgain is after how long it may send mostControls again.
	controlsAgain = 10 * time.Second
	// floodHeld is how long a connection with more of them stays open, while nothing of it is read.
	// If it was closed at once, its client would come back at once.
	floodHeld = 5 * time.Second
)

// controls bounds the frames of control of a connection. Each ping and each change of settings
// costs an answer, and a window has a place in a queue of gRPC that has no bound: it grows while
// the client takes no answer in. So windows weigh (intake) while gRPC waits for that.
type controls struct {
	left    int
	windows int // how many windows may come for answers, and do not count as frames of control
	queued  int // windows that came while gRPC wrote
	writing atomic.Bool

	since time.Time // when left was last set to mostControls
	flood bool      // there were too many, and the connection is closed later
	known bool      // endFlood was called
}

// grant is called for a frame that n frames of control may follow.
func (c *controls) grant(n int) { c.left = min(mostControls, c.left+n) }

// sent is called for a frame of gRPC.
func (c *controls) sent(f frameHead) {
	switch {
	case f.kind == frameData:
		c.windows = min(mostWindows, c.windows+controlsForFrame)
		c.grant(controlsForFrame)
	case f.kind == frameHeaders:
		c.grant(controlsForFrame)
	case f.kind == framePing && f.flags&flagAck == 0:
		c.grant(1) // its answer
	}
}

// spend is called for a frame of control.
func (c *controls) spend() {
	if c.left--; c.left >= 0 {
		return
	}
	if now := time.Now(); now.Sub(c.since) >= controlsAgain {
		c.since, c.left = now, mostControls-1
		return
	}
	c.flood = true
}

// window is called for a window of the client. It returns the change of the connection's weight.
func (c *controls) window() int64 {
	if c.windows > 0 {
		c.windows--
	} else {
		c.spend()
	}
	if !c.writing.Load() {
		return c.taken()
	}
	c.queued++
	return windowWeight
}

// taken is called when gRPC has written, and takes what is in its queue. It returns the change of
// the connection's weight.
func (c *controls) taken() int64 {
	n := c.queued
	c.queued = 0
	return -windowWeight * int64(n)
}

// Write writes what gRPC sends.
func (c *weighedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.change += c.controls.taken()
	c.out.walk(b, answers{c})
	c.settleLocked()
	c.mu.Unlock()
	c.controls.writing.Store(true)
	defer c.controls.writing.Store(false)
	return c.Conn.Write(b)
}

// endFlood ends what gRPC does with c. The socket is closed later.
func (c *weighedConn) endFlood() {
	c.door.flooded.Add(1)
	_ = c.raw.SetDeadline(time.Unix(1, 0)) // a writing may wait for the client
	time.AfterFunc(floodHeld, func() { _ = c.Conn.Close() })
}
