package web

import (
	"sync"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/rpc/admin"
	"penstock/rpc/catalog"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

// Promise: a limit that was put is never written over by a candidate of the limit before it,
// however close together the two changes are.
func TestPutIsNotWrittenOverByAnOlderCandidate(t *testing.T) {
	n := rpctest.Alone(t)
	list, err := catalog.New(catalog.Config{Node: n})
	if err != nil {
		t.Fatal(err)
	}
	of := func(limit int64) limiter.Spec {
		return limiter.Spec{
			Name: "new", Algorithm: limiter.FixedWindow, Limit: limit, Per: time.Hour,
		}
	}
	change := admin.NewChange(t.Context(), list, n, door.Recorder{}, "")
	put := func(l *limiter.Limit, err error) {
		if err == nil {
			_, err = change.Put(l)
		}
		if err != nil {
			t.Error(err)
		}
	}
	tried := of(2)
	for range 500 {
		put(admin.CheckedLimit(of(1), nil, &tried))
		var both sync.WaitGroup
		both.Go(func() { put(admin.CheckedLimit(of(3), nil, nil)) })
		both.Go(func() { _, _ = change.Promote("new") })
		both.Wait()
		if l := n.Limits()["new"]; l.Limit != 3 {
			t.Fatalf("after limit 3 was put, %d is in force", l.Limit)
		}
	}
}
