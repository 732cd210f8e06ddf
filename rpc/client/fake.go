package client

import (
	"context"
	"sync"
	"time"
)

// Fake is a Limiter for tests of programs that use one. Its zero value admits everything. It needs
// no node and no time.
type Fake struct {
	// Answer decides. Default: every request is admitted.
	Answer func(limit, key string, cost int64) (Decision, error)

	mu    sync.Mutex // guards calls
	calls []FakeCall
}

// FakeCall is one call of a Fake.
type FakeCall struct {
	Request
	Peek    bool
	Reserve bool
	Settle  bool // of a reservation; Cost is the used amount
}

// Calls returns the calls so far, in order.
func (f *Fake) Calls() []FakeCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]FakeCall(nil), f.calls...)
}

// Take notes the call and answers. It honours a context that has ended, as a Client does.
func (f *Fake) Take(ctx context.Context, limit, key string, cost int64) (Decision, error) {
	return f.Do(ctx, Request{Limit: limit, Key: key, Cost: cost})
}

// Do notes the call and answers.
func (f *Fake) Do(ctx context.Context, r Request) (Decision, error) {
	return f.answer(ctx, FakeCall{Request: r})
}

// Peek notes the call and answers.
func (f *Fake) Peek(ctx context.Context, limit, key string, cost int64) (Decision, error) {
	return f.answer(ctx, FakeCall{Request: Request{Limit: limit, Key: key, Cost: cost}, Peek: true})
}

// Reserve notes the call and answers. So do Settle and Cancel of what it returns.
func (f *Fake) Reserve(ctx context.Context, limit, key string, estimate int64,
	_ time.Duration,
) (*Reservation, error) {
	r := Request{Limit: limit, Key: key, Cost: estimate}
	d, err := f.answer(ctx, FakeCall{Request: r, Reserve: true})
	if err != nil {
		return nil, err
	}
	if !d.Allowed {
		return NewReservation(d, nil), nil
	}
	return NewReservation(d, fakeHold{f, r}), nil
}

type fakeHold struct {
	fake *Fake
	Request
}

func (h fakeHold) Settle(ctx context.Context, actual int64) error {
	h.fake.mu.Lock()
	defer h.fake.mu.Unlock()
	h.Cost = actual
	h.fake.calls = append(h.fake.calls, FakeCall{Request: h.Request, Settle: true})
	return ctx.Err()
}

func (h fakeHold) Extend(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func (f *Fake) answer(ctx context.Context, a FakeCall) (Decision, error) {
	f.mu.Lock()
	f.calls = append(f.calls, a)
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	if f.Answer == nil {
		return Decision{
			Allowed: true, RetryAfter: -1, LimitName: a.Limit, Owner: "fake",
			Source: "owner",
		}, nil
	}
	return f.Answer(a.Limit, a.Key, a.Cost)
}
