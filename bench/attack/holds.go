package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
)

// inventedHolders opens holds for a day from one address, and names another holder with each call.
// At the end another address reserves of the same limit, and says what it was answered.
func inventedHolders(ctx context.Context, v *victim) int64 {
	sent := each(8, reserve)(ctx, v)
	said, err := reserveOnce(v)
	if err != nil {
		said = err.Error()
	}
	v.said = fmt.Sprintf("; %s holds were open, and another address that reserved of the same "+
		"limit then was answered %s", v.openHolds(), said)
	return sent
}

// reserve asks again and again for 64 holds of one holder that nobody has heard of.
func reserve(ctx context.Context, v *victim) (sent int) {
	conn, err := dialGRPC(v.grpc)
	if err != nil {
		return 0
	}
	defer conn.Close()
	for ctx.Err() == nil {
		in := &penstockv1.ReserveRequest{TtlMs: (24 * time.Hour).Milliseconds(), Holder: word()}
		for range 64 {
			in.Items = append(in.Items,
				&penstockv1.Item{Limit: "demo", Key: []byte("held")})
		}
		_, _ = penstockv1.NewRateLimiterClient(conn).Reserve(ctx, in)
		sent += len(in.Items)
	}
	return sent
}

func reserveOnce(v *victim) (status string, err error) {
	answer, err := operator.Post("http://"+v.http+"/v1/reserve", "application/json",
		strings.NewReader(`{"limit":"demo","key":"held","ttl_ms":1000,"holder":"operator"}`))
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusOK && !strings.Contains(string(text), `"allowed":true`) {
		return "a denial", err
	}
	return answer.Status, err
}

// openHolds is what the node says of how many reservations are open.
func (v *victim) openHolds() string {
	page, err := v.read("/metrics")
	if err != nil {
		return err.Error()
	}
	_, rest, _ := strings.Cut(page, `penstock_holds{kind="reservation"} `)
	n, _, _ := strings.Cut(rest, "\n")
	return n
}
