// Package limiters puts limiters that work within one process under the same load: penstock's table, and what people use
// in Go instead. Follow one measurement: a Contestant is started; Measure gives it so many keys, then lets one worker
// and then two ask for keys drawn beforehand, and notes how long a decision takes, what it allocates, how much memory
// a key holds, and what the collector makes of it.
package limiters

import (
	"context"
	"sync"
	"time"

	sethvargo "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	"penstock/limiter"
)

// Take decides on one unit for a key, now.
type Take func(key string) bool

// Contestant is a limiter with the limit that all get: Limit units per Per and key, all of which may come at once.
type Contestant struct {
	Name  string
	Start func(keys int) (Running, error) // for about so many keys
}

// Limit and Per are the limit that all contestants enforce. A unit comes back after an hour, so no key is as good as
// never seen, and may be removed, before the measurement is over.
const (
	Limit = 1000
	Per   = 1000 * time.Hour
)

// Running is a limiter at work.
type Running struct {
	Worker func() Take // for each goroutine one of its own
	Keys   func() int  // how many have an entry; nil if it does not say
	Stop   func()
}

const (
	// Base is the contestant that the others are compared with.
	Base = "penstock"
	// Nothing is none: it shows what is measured beside the limiters.
	Nothing = "no-limiter"
)

// Contestants are all of them. Each reads the clock once per decision, but for one that says so.
var Contestants = []Contestant{
	{Base, table(limiter.GCRA, everyTime)},
	{"penstock-fixed-window", table(limiter.FixedWindow, everyTime)},
	{"penstock-clock-once-for-64", table(limiter.GCRA, onceFor64)},
	{"x-time-rate-in-a-sync.Map", timeRate},
	{"sethvargo-go-limiter", sethvargoStore},
	{"throttled-v2", throttledStore},
	{Nothing, nothing},
}

// table is penstock's, with its default budget unless the keys need more.
func table(algorithm limiter.Algorithm, clock func() func() limiter.Instant) func(int) (Running, error) {
	return func(keys int) (Running, error) {
		l, err := limiter.New(limiter.Spec{Name: "contest", Algorithm: algorithm, Limit: Limit, Per: Per})
		t := limiter.NewTable(limiter.TableConfig{Bytes: max(limiter.DefaultBytes, 160*int64(keys))})
		return Running{
			Worker: func() Take {
				now := clock()
				return func(key string) bool { return t.Take(now(), l, key, limiter.Hash(key), 1).Allowed }
			},
			Keys: func() int { return t.Stats().Keys },
			Stop: func() {},
		}, err
	}
}

// everyTime reads the clock as a node does: the wall once, and from then on what has passed since.
func everyTime() func() limiter.Instant {
	anchor := time.Now()
	wall := limiter.Instant(anchor.UnixNano())
	return func() limiter.Instant { return wall.Add(time.Since(anchor)) }
}

// onceFor64 reads it for 64 decisions at once, as a door does with what came in one message.
func onceFor64() func() limiter.Instant {
	read := everyTime()
	now, n := limiter.Instant(0), 0
	return func() limiter.Instant {
		if n%64 == 0 {
			now = read()
		}
		n++
		return now
	}
}

// timeRate is the usual way to have a golang.org/x/time/rate.Limiter per key.
func timeRate(int) (Running, error) {
	var limiters sync.Map
	every := rate.Every(Per / Limit)
	take := func(key string) bool {
		l, found := limiters.Load(key)
		if !found {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(every, Limit))
		}
		return l.(*rate.Limiter).Allow()
	}
	return Running{Worker: func() Take { return take }, Stop: func() {}}, nil
}

func sethvargoStore(int) (Running, error) {
	store, err := sethvargo.New(&sethvargo.Config{Tokens: Limit, Interval: Per})
	if err != nil {
		return Running{}, err
	}
	ctx := context.Background()
	take := func(key string) bool {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok && err == nil
	}
	return Running{Worker: func() Take { return take }, Stop: func() { _ = store.Close(ctx) }}, nil
}

// throttledStore has no bound on its keys, since with one it keeps them in order of use and is slower.
func throttledStore(int) (Running, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return Running{}, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(Limit, Per), MaxBurst: Limit - 1})
	ctx := context.Background()
	take := func(key string) bool {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	}
	return Running{Worker: func() Take { return take }, Stop: func() {}}, err
}

// nothing says yes.
func nothing(int) (Running, error) {
	return Running{Worker: func() Take { return func(key string) bool { return key != "" } }, Stop: func() {}}, nil
}
