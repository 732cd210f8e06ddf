// Package limiters puts limiters that work within one process under the same load: penstock's
// table, and what people use in Go instead. Follow one measurement: a Contestant is started;
// Measure gives it so many keys, then lets one worker and then two ask for keys drawn beforehand,
// and notes how long a decision takes, what it allocates, how much memory a key holds, and what the
// collector makes of it.
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

// TakeMany decides on one unit for each of the keys that came together in one message, MessageSize
// at most, now, and says how many are admitted.
type TakeMany func(keys []string) int

// MessageSize is how many keys come together.
const MessageSize = 64

// Contestant is a limiter with the limit that all get: Limit units per Per and key, all of which
// may come at once.
type Contestant struct {
	Name  string
	Start func(keys int) (Running, error) // for about so many keys
}

// Limit and Per are the limit that all contestants enforce. A unit comes back after an hour, so no
// key is as good as never seen, and may be removed, before the measurement is over.
const (
	Limit = 1000
	Per   = 1000 * time.Hour
)

// Running is a limiter at work.
type Running struct {
	Worker func() Take // for each goroutine one of its own
	// Reader is a worker that decides on whole messages, and is measured instead of Worker; nil
	// where there is no such thing.
	Reader func() TakeMany
	Keys   func() int // how many have an entry; nil if it does not say
	Stop   func()
}

const (
	// Base is the contestant that the others are compared with.
	Base = "penstock"
	// Messages is penstock as a node decides: on what came in one message.
	Messages = "penstock-in-messages-of-64"
	// Nothing is none: it shows what is measured beside the limiters.
	Nothing = "no-limiter"
)

// Contestants are all of them. Each reads the clock once per decision, but for the one that decides
// on whole messages.
var Contestants = []Contestant{
	{Base, table(limiter.GCRA, false)},
	{"penstock-fixed-window", table(limiter.FixedWindow, false)},
	{Messages, table(limiter.GCRA, true)},
	{"x-time-rate-in-a-sync.Map", timeRate},
	{"sethvargo-go-limiter", sethvargoStore},
	{"throttled-v2", throttledStore},
	{Nothing, nothing},
}

// table is penstock's, with its default budget unless the keys need more. In messages, it does what
// a node does with a message of many items: it reads the clock once, and says first what all of
// them will ask for.
func table(algorithm limiter.Algorithm, messages bool) func(int) (Running, error) {
	return func(keys int) (Running, error) {
		l, err := limiter.New(limiter.Spec{
			Name: "contest", Algorithm: algorithm, Limit: Limit,
			Per: Per,
		})
		t := limiter.NewTable(limiter.TableConfig{Bytes: max(limiter.DefaultBytes,
			160*int64(keys))})
		now := Clock()
		running := Running{
			Worker: func() Take {
				return func(key string) bool {
					return t.Take(now(), l, key, limiter.Hash(key), 1).Allowed
				}
			},
			Keys: func() int { return t.Stats().Keys },
			Stop: func() {},
		}
		if messages {
			running.Reader = func() TakeMany { return reader(t, l, now) }
		}
		return running, err
	}
}

func reader(t *limiter.Table, l *limiter.Limit, now func() limiter.Instant) TakeMany {
	var hashes [MessageSize]uint64
	return func(keys []string) (admitted int) {
		for i, key := range keys {
			hashes[i] = limiter.Hash(key)
			t.Expect(l, key, hashes[i])
		}
		at := now()
		for i, key := range keys {
			if t.Take(at, l, key, hashes[i], 1).Allowed {
				admitted++
			}
		}
		return admitted
	}
}

// Clock reads the clock as a node does: the wall once, and from then on what has passed since.
func Clock() func() limiter.Instant {
	anchor := time.Now()
	wall := limiter.Instant(anchor.UnixNano())
	return func() limiter.Instant { return wall.Add(time.Since(anchor)) }
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

// throttledStore has no bound on its keys, since with one it keeps them in order of use and is
// slower.
func throttledStore(int) (Running, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return Running{}, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store,
		throttled.RateQuota{MaxRate: throttled.PerDuration(Limit, Per), MaxBurst: Limit - 1})
	ctx := context.Background()
	take := func(key string) bool {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	}
	return Running{Worker: func() Take { return take }, Stop: func() {}}, err
}

// nothing says yes.
func nothing(int) (Running, error) {
	return Running{Worker: func() Take {
		return func(key string) bool { return key != "" }
	}, Stop: func() {}}, nil
}
