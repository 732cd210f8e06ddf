package main

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
)

// Promise: a take is charged once, also if its client gave up a node that stood still, asked
// another one, and the first goes on when no owner remembers the id any more; and a reset, which
// would admit more, is made once. A client that waits is answered.
func TestChargedOnceAcrossAStop(t *testing.T) {
	t.Parallel()
	n1, n2, n3 := trio(t, write(t, testLimits))
	keys := keysOwnedBy(t, n1, 3, "n1", 4*each)
	at1 := penstockv1.NewRateLimiterClient(dial(t, n1).Conn())
	at3 := penstockv1.NewRateLimiterClient(dial(t, n3).Conn())
	for _, ask := range waysToTake {
		for _, at := range []penstockv1.RateLimiterClient{at1, at3} { // they have connections
			if err := ask(t.Context(), at, takeOf("warm", 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := n3.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	waits := make(chan error, 1)
	go func() { waits <- takeOnce(patient, at3, takeOf("waits", 5_000)) }()
	for way, ask := range waysToTake {
		short, hangUp := context.WithTimeout(t.Context(), 300*time.Millisecond)
		for i, key := range keys[way*each:][:each] {
			go ask(short, at3, takeOf(key, 1+way*each+i))
		}
		<-short.Done()
		hangUp()
		for i, key := range keys[way*each:][:each] {
			if err := ask(t.Context(), at1, takeOf(key, 1+way*each+i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(time.Until(began.Add(4 * time.Second)))
	if err := n3.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Errorf("a client that waited: %v", err)
	}
	eventually(t, "it is back", func() error { return oneCluster(n1, n2, n3) })
	for i, key := range keys {
		if a, err := checkAt(n1, "big", key+"&cost=0"); err != nil || a.Remaining != 9999 {
			t.Errorf("key %d of %d: %+v, %v; want one unit charged", i, len(keys), a, err)
		}
	}
}

// each is how many keys are asked for in each way.
const each = 100

// taking asks once for a take with an id.
type taking func(context.Context, penstockv1.RateLimiterClient, *penstockv1.Item) error

var waysToTake = []taking{takeOnce, takeByStream, reserveOnce, resetAndTake}

func takeOf(key string, sequence int) *penstockv1.Item {
	return &penstockv1.Item{
		Limit: "big", Key: []byte(key),
		Id: &penstockv1.RequestId{Origin: 77, Sequence: uint64(sequence)},
	}
}

func takeOnce(
	ctx context.Context, at penstockv1.RateLimiterClient, it *penstockv1.Item,
) error {
	_, err := at.Check(ctx, &penstockv1.CheckRequest{Items: []*penstockv1.Item{it}})
	return err
}

// resetAndTake takes under another id than it resets.
func resetAndTake(
	ctx context.Context, at penstockv1.RateLimiterClient, it *penstockv1.Item,
) error {
	if _, err := at.Reset(ctx, &penstockv1.ResetRequest{
		Items: []*penstockv1.Item{it},
	}); err != nil {
		return err
	}
	return takeOnce(ctx, at, takeOf(string(it.Key), 10_000+int(it.Id.Sequence)))
}

// reserveOnce reserves without an id, which a repeat would be known by.
func reserveOnce(
	ctx context.Context, at penstockv1.RateLimiterClient, it *penstockv1.Item,
) error {
	_, err := at.Reserve(ctx, &penstockv1.ReserveRequest{
		Items: []*penstockv1.Item{item(it.Limit, string(it.Key))}, TtlMs: 60_000,
	})
	return err
}

func takeByStream(
	ctx context.Context, at penstockv1.RateLimiterClient, it *penstockv1.Item,
) error {
	stream, err := at.CheckStream(ctx)
	if err != nil {
		return err
	}
	err = stream.Send(&penstockv1.CheckStreamRequest{
		Tag: 1, Check: &penstockv1.CheckRequest{Items: []*penstockv1.Item{it}},
	})
	if err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err == nil && answer.Error != nil {
		err = errors.New(answer.Error.Message)
	}
	return err
}

// Promise: what a hold was settled for just before its owner was stopped is charged once, also if
// the key was charged while another node decided: that one hears of the settlement when the owner
// goes on.
func TestSettledJustBeforeAStop(t *testing.T) {
	soonAndLate(t, settledJustBeforeAStop)
}

func settledJustBeforeAStop(t *testing.T, late bool) {
	t.Parallel()
	n1, n2, n3 := trio(t, write(t, testLimits))
	keys := keysOwnedBy(t, n1, 3, "n3", 10)
	holds := make([]string, len(keys))
	for i, key := range keys {
		holds[i] = post[heldJSON](t, n1, "/v1/reserve",
			`{"limit":"big","key":"`+key+`","cost":5,"ttl_ms":600000}`).ID
	}
	time.Sleep(time.Second)
	for _, id := range holds {
		post[heldJSON](t, n3, "/v1/settle", `{"id":"`+id+`","actual":5}`)
	}
	if err := n3.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "others decide", func() error { return whole(9995, keys, n1, n2) })
	for _, key := range keys {
		if a, err := checkAt(n1, "big", key+"&cost=33"); err != nil || a.Remaining != 9962 {
			t.Errorf("while it is stopped: %+v, %v", a, err)
		}
	}
	if late {
		waitForMembers(t, n1, 2)
	}
	if err := n3.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() error { return oneCluster(n1, n2, n3) })
	eventually(t, "each unit is charged once", func() error {
		return whole(9962, keys, n1, n2, n3)
	})
}
