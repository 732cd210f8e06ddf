package client_test

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
)

// mute is a node that does all that it is asked, and of which no answer arrives.
type mute struct {
	penstockv1.UnimplementedRateLimiterServer
	penstockv1.UnimplementedAdminServer

	mu      sync.Mutex // guards below
	credits int
	resets  []*penstockv1.ResetRequest
}

func (m *mute) Credit(context.Context,
	*penstockv1.CreditRequest,
) (*penstockv1.CreditResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.credits++
	return nil, status.Error(codes.Unavailable, "the connection breaks")
}

func (m *mute) Reset(_ context.Context,
	in *penstockv1.ResetRequest,
) (*penstockv1.ResetResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resets = append(m.resets, in)
	return nil, status.Error(codes.Unavailable, "the connection breaks")
}

func (m *mute) serve(t *testing.T) string {
	t.Helper()
	l, server := listen(t), grpc.NewServer()
	penstockv1.RegisterRateLimiterServer(server, m)
	penstockv1.RegisterAdminServer(server, m)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

// Promise: a request that is retried has its effect once. A credit has no id, so it is sent once.
func TestCreditIsSentOnce(t *testing.T) {
	var m mute
	c := newClient(t, m.serve(t))
	_, err := penstockv1.NewAdminClient(c.Conn()).Credit(patience(t), &penstockv1.CreditRequest{
		Limit: "big", Key: []byte("k"), Units: 5,
	})
	if status.Code(err) != codes.Unavailable || m.credits != 1 {
		t.Errorf("%d credits, %v; want one, and UNAVAILABLE", m.credits, err)
	}
}

// Promise: … a reset that is sent again has the id of the first, so that what was charged in
// between stays charged.
func TestRepeatedResetHasTheSameID(t *testing.T) {
	var m mute
	c := newClient(t, m.serve(t))
	if _, err := c.Reset(patience(t), "big", "k"); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want UNAVAILABLE", err)
	}
	if len(m.resets) != 2 {
		t.Fatalf("%d resets arrive, want 2", len(m.resets))
	}
	first, again := m.resets[0].Items[0].Id, m.resets[1].Items[0].Id
	if first.GetOrigin() == 0 || first.String() != again.String() {
		t.Errorf("the ids of a reset and its repeat: %v and %v", first, again)
	}
}

// Promise: a take that is not answered because its stream ends is sent once more, under its id:
// also if the stream ends in good order, as a proxy ends one that has lasted long enough. If it
// ends so again, the error is a status, for which Config.OnError decides.
func TestStreamThatEndsInGoodOrder(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	answers := true
	n := script{stream: func(i int64, s penstockv1.RateLimiter_CheckStreamServer) error {
		in, err := s.Recv()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, ids(in.Check)...)
		if i == 1 || !answers {
			return nil
		}
		return s.Send(&penstockv1.CheckStreamResponse{Tag: in.Tag, Check: allow(in.Check)})
	}}
	c := newClient(t, n.serve(t))
	if d, err := c.Take(patience(t), "big", "k", 1); err != nil || !d.Allowed ||
		len(asked) != 2 || asked[0] != asked[1] {
		t.Errorf("%+v, %v; asked under the ids %v", d, err, asked)
	}
	mu.Lock()
	answers = false
	mu.Unlock()
	if _, err := c.Take(patience(t), "big", "k", 1); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want UNAVAILABLE", err)
	}
}
