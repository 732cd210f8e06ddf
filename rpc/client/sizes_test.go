package client_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// Promise: a take that is in error does not spoil those that travel with it, also if it is larger
// than a message may be; nor is it taken for one that no node has answered.
func TestHugeTakeIsRefusedAlone(t *testing.T) {
	_, addr := serveNode(t, "n1")
	c, err := client.New(client.Config{Targets: []string{addr}, OnError: client.FailOpen})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, huge := patience(t), strings.Repeat("k", 3<<20)
	for _, r := range []client.Request{
		{Limit: "big", Key: huge, Cost: 1},
		{Limit: huge, Key: "k", Cost: 1},
		{Limit: "big", Key: "k", Plan: huge, Cost: 1},
	} {
		if d, err := c.Do(ctx, r); status.Code(err) != codes.InvalidArgument ||
			len(err.Error()) > 500 {
			t.Errorf("%+v, %.500v; want a short INVALID_ARGUMENT", d, err)
		}
		if d, err := c.DoAll(ctx, []client.Request{r}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("in a batch: %+v, %.500v; want INVALID_ARGUMENT", d, err)
		}
	}
	// together they are more than a node reads in one message
	long := strings.Repeat("k", 6<<10)
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			key, want := fmt.Sprint(i), codes.OK
			if i > 0 {
				key, want = long+key, codes.InvalidArgument
			}
			if d, err := c.Take(ctx, "big", key, 1); status.Code(err) != want || d.Degraded {
				t.Errorf("take %d: %+v, %.200v", i, d, err)
			}
		})
	}
	wg.Wait()
}

// Promise: many requests in one message are decided as they would be one by one: also if each is
// denied with the longest body that a limit may have.
func TestLargestAnswers(t *testing.T) {
	var n script
	n.check = func(_ int64, in *penstockv1.CheckRequest) (*penstockv1.CheckResponse, error) {
		out := new(penstockv1.CheckResponse)
		for range in.Items {
			out.Decisions = append(out.Decisions, &penstockv1.Decision{
				LimitName: strings.Repeat("n", limiter.MaxName),
				Denial: &penstockv1.Denial{
					Status: 429, Body: strings.Repeat("b", limiter.MaxBody),
				},
			})
		}
		return out, nil
	}
	c := newClient(t, n.serve(t))
	requests := make([]client.Request, client.MaxAll)
	for i := range requests {
		requests[i] = client.Request{Limit: "l", Key: "k", Cost: 1}
	}
	out, err := c.DoAll(patience(t), requests)
	if err != nil || len(out) != client.MaxAll || len(out[0].Denial.Body) != limiter.MaxBody {
		t.Errorf("%d decisions, %v", len(out), err)
	}
}

// Promise: a node that has too much to do is not asked for more: what it refuses together is not
// sent again one by one.
func TestRefusalForLoadIsNotSplit(t *testing.T) {
	for _, code := range []codes.Code{
		codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded,
	} {
		var mu sync.Mutex
		asked := map[string]int{} // by id
		first := make(chan struct{})
		n := script{stream: func(_ int64, s penstockv1.RateLimiter_CheckStreamServer) error {
			for {
				in, err := s.Recv()
				if err != nil {
					return err
				}
				<-first // meanwhile, further takes wait, and travel together
				mu.Lock()
				for _, id := range ids(in.Check) {
					asked[id]++
				}
				mu.Unlock()
				if err := s.Send(&penstockv1.CheckStreamResponse{
					Tag: in.Tag, Error: &penstockv1.StreamError{Code: int32(code), Message: "busy"},
				}); err != nil {
					return err
				}
			}
		}}
		c := newClient(t, n.serve(t))
		const takes = 100
		var wg sync.WaitGroup
		for range takes {
			wg.Go(func() {
				if _, err := c.Take(patience(t), "big", "k", 1); status.Code(err) != code {
					t.Errorf("%v, want %v", err, code)
				}
			})
		}
		close(first)
		wg.Wait()
		for id, times := range asked {
			if times > 1 {
				t.Errorf("%v: a take is asked for %d times: %s", code, times, id)
			}
		}
	}
}
