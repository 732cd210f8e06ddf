package client

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
)

// remembered is how long a node knows the id of what it has charged.
const remembered = 2 * time.Second

var errBroken = status.Error(codes.Unavailable, "the connection breaks")

// slowLines are streams of which the first takes what it is sent, and breaks after a while without
// an answer; the next one takes a while to open.
type slowLines struct {
	penstockv1.RateLimiterClient
	breaks, opens time.Duration
	sent          []time.Time
	streams       int
}

func (s *slowLines) CheckStream(ctx context.Context,
	_ ...grpc.CallOption,
) (penstockv1.RateLimiter_CheckStreamClient, error) {
	s.streams++
	ends := make(chan error, 1)
	if s.streams == 1 {
		time.AfterFunc(s.breaks, func() { ends <- errBroken })
	} else if err := sleep(ctx, s.opens); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return &slowLine{lines: s, ctx: ctx, ends: ends}, nil
}

type slowLine struct {
	penstockv1.RateLimiter_CheckStreamClient
	lines *slowLines
	ctx   context.Context
	ends  chan error
}

func (s *slowLine) SendMsg(any) error {
	s.lines.sent = append(s.lines.sent, time.Now())
	return nil
}

func (s *slowLine) RecvMsg(any) error {
	select {
	case err := <-s.ends:
		return err
	case <-s.ctx.Done():
		return io.EOF
	}
}

// Promise: a take that is retried is charged once: it is not sent again when its owner may have
// forgotten its id, however long its caller waits and a connection takes.
func TestTakeIsNotRepeatedTooLate(t *testing.T) {
	for _, opens := range []time.Duration{100 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			lines := &slowLines{breaks: time.Second, opens: opens}
			to := newTargets([]string{"127.0.0.1:1"})
			all := newTakes(lines, to)
			one := &take{done: make(chan struct{}, 1), deadline: time.Now().Add(10 * time.Second)}
			if err := all.post(one); err != nil {
				t.Fatal(err)
			}
			select {
			case <-one.done:
			case <-time.After(10 * time.Second):
			}
			all.close() // and so what writes
			to.close()
			for i, at := range lines.sent {
				if late := at.Sub(lines.sent[0]); late >= remembered {
					t.Errorf("sent for the %d-th time %v after the first", i+1, late)
				}
			}
			if again := opens < time.Second; again != (len(lines.sent) == 2) ||
				!again && status.Code(one.err) != codes.Unavailable {
				t.Errorf("a stream opens after %v: sent %d times; %v", opens, len(lines.sent),
					one.err)
			}
		})
	}
}

// Promise: … and neither are other calls.
func TestCallIsNotRepeatedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTargets([]string{"127.0.0.1:1"})
		c := &Client{targets: to}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began, calls := time.Now(), 0
		err := c.twice(ctx, func(ctx context.Context) error {
			if calls++; calls == 1 {
				time.Sleep(time.Second)
				return errBroken
			}
			if err := sleep(ctx, 3*time.Second); err != nil { // for a connection
				return status.FromContextError(err).Err()
			}
			t.Errorf("sent again %v after the first time", time.Since(began))
			return nil
		})
		if calls != 2 || status.Code(err) != codes.Unavailable {
			t.Errorf("%d calls, %v; want two, and that the connection broke", calls, err)
		}
		to.close()
	})
}
