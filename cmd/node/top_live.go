package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
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
	l := newLookout(v.remote)
	in := &penstockv1.TopRequest{
		Count: int32(max(v.Count, topListed)), Limit: v.Limit, Asked: mostAsked,
	}
	return watch(l, sh, &topScreen{limit: v.Limit},
		func(ctx context.Context) (*topLook, time.Duration, error) {
			look := l.look(ctx, in)
			return look, look.slowest, look.err
		})
}

// watch shows on the terminal what looks say until somebody quits or a signal comes, and closes l
// then.
func watch[L any](l *lookout, sh shell, s liveScreen[L], look looking[L]) error {
	defer l.close()
	first, _, err := look(context.Background())
	if err != nil {
		return err // a wrong address or token: there is nothing to look at
	}
	s.take(first)
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	defer stop()
	t, err := openTerminal(sh, true)
	if err != nil {
		return err
	}
	defer t.close()
	runScreen(ctx, s, t, look, coloured(sh.out))
	return nil
}

// endSignals end a verb with a screen. SIGQUIT would else leave the terminal in raw mode.
var endSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// looking looks at the cluster once. slowest is the longest answer of a node; an error says that no
// node answers.
type looking[L any] func(context.Context) (seen L, slowest time.Duration, err error)

// lookAgain looks at the cluster until ctx ends. The last look is done when the channel is closed.
func lookAgain[L any](ctx context.Context, look looking[L]) <-chan L {
	looks := make(chan L)
	go func() {
		defer close(looks)
		for pause := topEvery; ; {
			sleep(ctx, pause)
			if ctx.Err() != nil {
				return
			}
			began := time.Now()
			seen, slowest, _ := look(ctx) // what is seen says the error
			pause = pauseAfter(time.Since(began), slowest)
			select {
			case looks <- seen:
			case <-ctx.Done():
				return
			}
		}
	}()
	return looks
}

// liveScreen is what a verb shows on the whole terminal.
type liveScreen[L any] interface {
	take(look L)
	press(k key) (quit bool)
	lines(now time.Time, width, height int, colours bool) []string
}

// runScreen draws what is new until somebody quits, ctx ends, or the terminal is gone. Nothing
// looks at the cluster any more when it returns.
func runScreen[L any](
	ctx context.Context, s liveScreen[L], t *terminal, look looking[L], colours bool,
) {
	ctx, cancel := context.WithCancel(ctx)
	looks := lookAgain(ctx, look)
	defer untilClosed(looks)
	defer cancel()
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
		case seen, more := <-looks:
			if !more {
				return
			}
			s.take(seen)
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

// untilClosed waits until a channel is closed.
func untilClosed[L any](c <-chan L) {
	for {
		if _, more := <-c; !more {
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
