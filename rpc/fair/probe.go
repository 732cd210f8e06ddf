package fair

import (
	"os"
	"runtime"
	"sync"
	"time"
)

// wait is how long it takes from when a request has come until its goroutine runs.
type wait struct {
	wall time.Duration
	// own is the part in which processors worked for this process: how long what stood before it in
	// line took. In the other part other programs had the processors.
	own time.Duration
	had time.Duration // processor time of the process since the last call; 0: it is not known
	// under says that it is not over: it is at least so long
	under bool
}

// probe finds out how long a request waits: it sends itself a byte, and a goroutine that waits for
// it as those of connections do says when it runs. The runtime's own figures say less: of the
// goroutines of a request, some hardly wait, and those that have not run yet, or of which the
// runtime does not know yet that something has come for them, are not counted.
type probe struct {
	mu      sync.Mutex    // guards what follows
	in, out *os.File      // nil: there is none yet
	broken  bool          // there can be none
	reading bool          // a goroutine waits for a byte
	sent    moment        // of the byte that is under way
	under   bool          // there is one
	last    wait          // of one that has come since ask was last called
	used    time.Duration // processor time when ask was last called
}

// moment is a time, and how much time processors had spent on the process.
type moment struct {
	at   time.Time
	used time.Duration
}

// probeIdle is how long the goroutine of a probe waits for the next byte.
const probeIdle = 300 * time.Millisecond

// ask returns the wait of the byte that was sent when it was last called, as far as that is known
// by now, and sends the next one. If no byte could be sent then, it is zero.
func (p *probe) ask() (w wait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil && !p.broken {
		var err error
		p.in, p.out, err = os.Pipe()
		p.broken = err != nil
	}
	w, p.last = p.last, wait{}
	now := moment{time.Now(), processorTime()}
	switch {
	case p.broken:
	case p.under:
		w = p.sent.until(now)
		w.under = true
	case !p.reading:
		p.reading = true
		go p.read()
	default:
		p.under, p.sent = true, now
		_, err := p.out.Write([]byte{0})
		p.broken = err != nil
	}
	w.had, p.used = now.used-p.used, now.used
	return w
}

// read is the goroutine that waits for bytes, until none has come for a time.
func (p *probe) read() {
	var b [1]byte
	for {
		_ = p.in.SetReadDeadline(time.Now().Add(probeIdle)) // else it waits for ever
		n, err := p.in.Read(b[:])
		now := moment{time.Now(), processorTime()}
		p.mu.Lock()
		if n > 0 {
			p.under, p.last = false, p.sent.until(now)
		}
		if err != nil && !p.under {
			p.reading = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// until is the wait from m to now, for each of the processors that the process may use.
func (m moment) until(now moment) wait {
	wall, used := now.at.Sub(m.at), now.used-m.used
	if now.used == 0 {
		return wait{wall: wall, own: wall}
	}
	return wait{wall: wall, own: min(wall, used/time.Duration(runtime.GOMAXPROCS(0)))}
}
