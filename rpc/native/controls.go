package native

import "time"

const (
	// mostControls is how many frames a connection may send that are neither data nor the head of a
	// call, as pings, settings and windows.
	mostControls = 250
	// controlsForFrame is how many more it may send for each call that it opens, and for each frame
	// of an answer: clients answer data with windows, and with pings that measure the connection.
	// For each ping of gRPC, which measures as well while a message comes, it may send one.
	controlsForFrame = 10
	// controlsAgain is after how long it may send mostControls again.
	controlsAgain = 10 * time.Second
	// floodHeld is how long a connection with more of them stays open, while nothing of it is read.
	// If it was closed at once, its client would come back at once.
	floodHeld = 5 * time.Second
)

// controls bounds the frames of control of a connection. Each ping and each change of settings
// costs an answer, and a window has a place in a queue of gRPC that has no bound: it grows while
// the client takes no answer in.
type controls struct {
	left  int
	since time.Time // when left was last set to mostControls
	flood bool      // there were too many, and the connection is closed later
	known bool      // endFlood was called
}

// grant is called for a frame that n frames of control may follow.
func (c *controls) grant(n int) { c.left = min(mostControls, c.left+n) }

// sent is called for a frame of gRPC.
func (c *controls) sent(f frameHead) {
	switch {
	case f.kind == frameData || f.kind == frameHeaders:
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

// endFlood ends what gRPC does with c. The socket is closed later.
func (c *weighedConn) endFlood() {
	c.door.flooded.Add(1)
	_ = c.raw.SetDeadline(time.Unix(1, 0)) // a writing may wait for the client
	time.AfterFunc(floodHeld, func() { _ = c.Conn.Close() })
}
