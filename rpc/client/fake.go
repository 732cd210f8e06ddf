package client

import (
	"context"
	"sync"
)

// Fake is a Limiter for tests of programs that use one. Its zero value admits everything. It needs no node and no time.
type Fake struct {
	// Answer decides. Default: yes.
	Answer func(limit, key string, cost int64) (Decision, error)

	mu    sync.Mutex // guards asked
	asked []Asked
}

// Asked is one call of a Fake.
type Asked struct {
	Request
	Peek bool
}

// Asked are the calls so far, in order.
func (f *Fake) Asked() []Asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Asked(nil), f.asked...)
}

// Take notes the call and answers. It honours a context that has ended, as a Client does.
func (f *Fake) Take(ctx context.Context, limit, key string, cost int64) (Decision, error) {
	return f.Do(ctx, Request{Limit: limit, Key: key, Cost: cost})
}

// Do notes the call and answers.
func (f *Fake) Do(ctx context.Context, r Request) (Decision, error) {
	return f.answer(ctx, Asked{Request: r})
}

// Peek notes the call and answers.
func (f *Fake) Peek(ctx context.Context, limit, key string, cost int64) (Decision, error) {
	return f.answer(ctx, Asked{Request: Request{Limit: limit, Key: key, Cost: cost}, Peek: true})
}

func (f *Fake) answer(ctx context.Context, a Asked) (Decision, error) {
	f.mu.Lock()
	f.asked = append(f.asked, a)
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	if f.Answer == nil {
		return Decision{Allowed: true, RetryAfter: -1, LimitName: a.Limit, Owner: "fake", Source: "owner"}, nil
	}
	return f.Answer(a.Limit, a.Key, a.Cost)
}
