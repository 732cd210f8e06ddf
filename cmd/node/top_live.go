package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

const (
	// topEvery is how often a live screen asks the cluster, if that is quick.
	topEvery = time.Second
	// topRest is how many times as long as the slowest answer took nothing is asked: a look at all
	// keys of a large table must not keep its node from its work.
	topRest = 4
	// resizeEvery is how often the size of the terminal is looked at. Not all systems tell it.
	resizeEvery = 100 * time.Millisecond
	// topListed is how many keys there are at least to scroll through.
	topListed = 100
)

// pauseAfter is how long is waited after a look that took so long, of which the slowest answer took
// slowest.
func pauseAfter(took, slowest time.Duration) time.Duration {
	return max(topEvery-took, topRest*slowest)
}

// live redraws the screen until q or a signal.
func (v *topVerb) live(sh shell) error {
	l := &lookout{remote: v.remote, nodes: map[string]*client.Client{}}
	in := &penstockv1.TopRequest{
		Count: int32(max(v.Count, topListed)), Limit: v.Limit, Asked: mostAsked,
	}
	first := l.look(context.Background(), in)
	if first.err != nil {
		l.close()
		return first.err // a wrong address or token: there is nothing to look at
	}
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	defer stop()
	t, err := openTerminal(sh, true)
	if err != nil {
		return err
	}
	defer t.close()
	looks := make(chan *topLook)
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		defer l.close()
		l.lookAgain(ctx, in, looks)
	}()
	s := &topScreen{limit: v.Limit}
	s.take(first)
	s.run(ctx, t, looks, coloured(sh.out))
	stop()
	<-looking
	return nil
}

// endSignals end a verb with a screen. SIGQUIT would else leave the terminal in raw mode.
var endSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// lookAgain asks the cluster until ctx ends.
func (l *lookout) lookAgain(ctx context.Context, in *penstockv1.TopRequest, to chan<- *topLook) {
	for pause := topEvery; ; {
		sleep(ctx, pause)
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		look := l.look(ctx, in)
		pause = pauseAfter(time.Since(began), look.slowest)
		select {
		case to <- look:
		case <-ctx.Done():
			return
		}
	}
}

// run draws what is new until somebody quits, ctx ends, or the terminal is gone.
func (s *topScreen) run(ctx context.Context, t *terminal, looks <-chan *topLook, colours bool) {
	stops := stopSignals()
	defer signal.Stop(stops)
	resize := time.NewTicker(resizeEvery)
	defer resize.Stop()
	pressed := t.keys()
	var width, height int
	var drawn time.Time
	for {
		w, h := t.size()
		if now := time.Now(); w != width || h != height || now.Sub(drawn) >= topEvery {
			width, height, drawn = w, h, now
			t.draw(s.lines(now, w, h, colours))
		}
		select {
		case look := <-looks:
			s.take(look)
			drawn = time.Time{}
		case k, there := <-pressed:
			if !there || s.press(k) {
				return
			}
			if k == keySuspend {
				t.suspend()
			}
			drawn = time.Time{}
		case <-stops:
			t.suspend()
			drawn = time.Time{}
		case <-resize.C:
		case <-ctx.Done():
			return
		}
	}
}

// stopSignals gets the signals that ask this process to stop for a while.
func stopSignals() chan os.Signal {
	c := make(chan os.Signal, 1)
	if len(suspended) > 0 { // none would mean all signals
		signal.Notify(c, suspended...)
	}
	return c
}

// suspend gives the terminal back while this process is stopped.
func (t *terminal) suspend() {
	t.close()
	suspend()
	_ = t.enter() // if the terminal is gone, reading keys says so
}
