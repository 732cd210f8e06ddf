package rpc

import (
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
)

// errOtherAmount is the answer to a hold that was settled with another amount.
var errOtherAmount = errors.New("it was settled with another amount")

// hold reserves and settles at once, each by one of two doors, and settles again.
func (v *visit) hold() error {
	a := v.item(opTake)
	by, part := v.byte(), v.byte()
	if a.meter.spec == nil || a.cost < 1 || a.cost > a.meter.most {
		return nil
	}
	a.drain, a.report = false, false
	k := v.keyOf(&a)
	k.touched = true
	got, err := v.house.reserve(by&1 != 0, &a)
	v.log("reserve %+v: %+v, %v", a, got, err)
	if err != nil {
		return err
	}
	want := decide(k.counter, false, v.now(), a.asked)
	if err := v.compare(&way{name: "a reservation"}, &a, &got, want); err != nil {
		return err
	}
	if !want.allowed {
		return v.lookAll()
	}
	actual := int64(part) % (a.cost + 1)
	k.charge(v.now(), actual-a.cost)
	k.admit(v.now(), actual-a.cost)
	for i := range 2 {
		got, err := v.house.settle(by>>1&1 != 0 != (i == 1), got.hold, actual)
		v.log("settle %d: %+v, %v", actual, got, err)
		if err != nil {
			return err
		}
		if left := max(0, k.left(v.now())); got.told.left != left {
			return fmt.Errorf("%d are left of %s after %d of %d were settled, want %d",
				got.told.left, a.of, actual, a.cost, left)
		}
	}
	if _, err := v.house.settle(by&4 != 0, got.hold, actual+1); err != errOtherAmount {
		return fmt.Errorf("a hold is settled with two amounts: %w", err)
	}
	return v.lookAll()
}

// reserve reserves over HTTP or over gRPC.
func (h *house) reserve(overHTTP bool, a *asking) (reply, error) {
	if overHTTP {
		replies, err := readPage(h.ask(http.MethodPost, "/v1/reserve", fmt.Appendf(nil,
			`{"items":[{"limit":%q,"key":%q,"cost":%d}],"ttl_ms":60000,"holder":"h"}`, a.limit(),
			a.key(), a.cost)))
		if err == nil && len(replies) != 1 {
			err = fmt.Errorf("%d holds for one item", len(replies))
		}
		if err != nil {
			return reply{}, err
		}
		return replies[0], nil
	}
	out, err := h.calls.call("penstock.v1.RateLimiter/Reserve", marshal(
		&penstockv1.ReserveRequest{
			Items: check([]asking{*a}, false).Items, TtlMs: 60000, Holder: "h",
		}))
	if err != nil {
		return reply{}, err
	}
	holds := out.(*penstockv1.ReserveResponse).Holds
	if len(holds) != 1 {
		return reply{}, fmt.Errorf("%d holds for one item", len(holds))
	}
	r := decision(holds[0].Decision)
	r.hold = holds[0].Id
	return r, nil
}

// settle settles over HTTP or over gRPC.
func (h *house) settle(overHTTP bool, id string, actual int64) (reply, error) {
	if overHTTP {
		code, text := h.ask(http.MethodPost, "/v1/settle",
			fmt.Appendf(nil, `{"id":%q,"actual":%d}`, id, actual))
		if code == http.StatusConflict {
			return reply{}, errOtherAmount
		}
		replies, err := readPage(code, text)
		if err == nil && len(replies) != 1 {
			err = fmt.Errorf("not settled: %s", text)
		}
		if err != nil {
			return reply{}, err
		}
		return replies[0], nil
	}
	out, err := h.calls.call("penstock.v1.RateLimiter/Settle", marshal(
		&penstockv1.SettleRequest{Id: id, Actual: actual}))
	switch {
	case status.Code(err) == codes.AlreadyExists:
		return reply{}, errOtherAmount
	case err != nil:
		return reply{}, err
	}
	return decision(out.(*penstockv1.SettleResponse).Decision), nil
}
