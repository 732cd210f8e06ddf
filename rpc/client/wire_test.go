package client

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	penstockv1 "penstock/proto/penstock/v1"
)

// TestRequestsAreTheLibrarys: what is written by hand is what the library reads.
func TestRequestsAreTheLibrarys(t *testing.T) {
	for _, n := range []int64{0, 1, -1, 127, 128, math.MaxInt64, math.MinInt64} {
		for _, r := range []Request{
			{Limit: "l", Key: "k", Cost: n},
			{Key: string(make([]byte, 100)), Cost: n, Report: true},
			{Key: string(make([]byte, 127)), Cost: n, Report: true},
			{Key: string(make([]byte, 20_000)), Cost: n, Report: true},
			{Limit: "ä", Key: "\xff", Drain: true, Strict: true},
			{
				Limit: "l", Key: "k", Cost: n, Report: true, Drain: true, Strict: true,
				At: time.UnixMilli(n / 2),
			},
		} {
			want := &penstockv1.Item{
				Limit: r.Limit, Key: []byte(r.Key), Cost: &r.Cost,
				Id:     &penstockv1.RequestId{Origin: uint64(n), Sequence: uint64(n)},
				Report: r.Report, Drain: r.Drain, Strict: r.Strict,
			}
			if !r.At.IsZero() {
				want.AtMs = new(r.At.UnixMilli())
			}
			item := appendItem([]byte("what was there")[:0], &r, uint64(n), uint64(n))
			b := streamRequest(7, []*take{{item: item}, {item: item}}, 1500*time.Millisecond)
			got := new(penstockv1.CheckStreamRequest)
			whole := &penstockv1.CheckStreamRequest{
				Tag: 7, TimeoutMs: 1500,
				Check: &penstockv1.CheckRequest{Items: []*penstockv1.Item{want, want}},
			}
			if err := proto.Unmarshal(b, got); err != nil || !proto.Equal(got, whole) {
				t.Fatalf("%v: %v, want %v", err, got, whole)
			}
			var all batch
			for i := range 2 {
				all.add(i, &r, uint64(n), uint64(n))
			}
			batched := new(penstockv1.CheckRequest)
			if err := proto.Unmarshal(all.message, batched); err != nil ||
				!proto.Equal(batched, whole.Check) {
				t.Fatalf("%v: %v, want %v", err, batched, whole.Check)
			}
		}
	}
}

// TestResponsesAreTheLibrarys: what the library writes is read as it reads it, every field of a
// decision; and a message that is cut short is none, or has fewer decisions.
func TestResponsesAreTheLibrarys(t *testing.T) {
	var known names
	for _, n := range []int64{0, 1, -1, -2, 127, 128, 1 << 40, math.MaxInt64, math.MinInt64} {
		d := &penstockv1.Decision{}
		value := reflect.ValueOf(d).Elem()
		for i := range value.NumField() {
			switch f := value.Field(i); {
			case !value.Type().Field(i).IsExported():
			case f.Kind() == reflect.Bool:
				f.SetBool(n != 0)
			case f.Kind() == reflect.String && n != 0:
				f.SetString(fmt.Sprint(value.Type().Field(i).Name, n))
			case f.CanInt() && f.Kind() == reflect.Int32:
				f.SetInt(n % 10)
			case f.CanInt():
				f.SetInt(n)
			}
		}
		b, err := proto.Marshal(&penstockv1.CheckStreamResponse{
			Tag:   uint64(n),
			Check: &penstockv1.CheckResponse{Decisions: []*penstockv1.Decision{d, d}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r, ok := readResponse(b)
		if !ok || r.tag != uint64(n) || r.err != nil {
			t.Fatalf("%v, %+v", ok, r)
		}
		for range 2 {
			got := Decision{Owner: "of before", Degraded: true}
			if ok := r.next(&got, &known); !ok || got != decision(d) {
				t.Fatalf("%v, %+v, want %+v", ok, got, decision(d))
			}
		}
		if r.next(new(Decision), &known) {
			t.Fatal("a third decision")
		}
		for cut := range b {
			r, ok := readResponse(b[:cut])
			for read := 0; ok; read++ {
				if !r.next(new(Decision), &known) {
					break
				} else if read == 2 {
					t.Fatalf("%d of %d bytes have %d decisions", cut, len(b), read)
				}
			}
		}
	}
	b, err := proto.Marshal(&penstockv1.CheckStreamResponse{
		Tag:   3,
		Error: &penstockv1.StreamError{Code: 5, Message: "no limit"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := readResponse(b); !ok || r.tag != 3 || status.Code(r.err) != codes.NotFound ||
		status.Convert(r.err).Message() != "no limit" {
		t.Fatalf("%v, %+v", ok, r)
	}
}

// TestNamesAreBounded: answers may bring ever new names.
func TestNamesAreBounded(t *testing.T) {
	var n names
	for i := range 3 * mostNames {
		want := fmt.Sprint("limit", i)
		if got := n.of([]byte(want)); got != want {
			t.Fatal(got)
		}
	}
	if len(n.all) != mostNames {
		t.Fatalf("%d names are kept, want %d", len(n.all), mostNames)
	}
}
