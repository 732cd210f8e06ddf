package page

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"penstock/rpc/door"
)

// Promise: a fault that was prepared is said as any other, each time.
func TestPreparedFaultsAreSaidAsOthers(t *testing.T) {
	for _, f := range []door.Fault{
		{Status: http.StatusTooManyRequests, Type: door.Overloaded, Text: "later"},
		{Status: http.StatusUnauthorized, Field: "authorization", Text: "who is it?"},
	} {
		want := httptest.NewRecorder()
		Fault(want, f)
		say := Prepared(f)
		for range 2 {
			got := httptest.NewRecorder()
			got.Header().Set("X-Other", "stays")
			say(got, nil)
			if got.Header().Get("X-Other") != "stays" {
				t.Error("another header is lost")
			}
			got.Header().Del("X-Other")
			if got.Code != want.Code || got.Body.String() != want.Body.String() ||
				!reflect.DeepEqual(got.Header(), want.Header()) {
				t.Errorf("%d %v %s, want %d %v %s", got.Code, got.Header(), got.Body, want.Code,
					want.Header(), want.Body)
			}
			got.Header().Add("Retry-After", "100") // what a caller adds is not said to the next
		}
	}
}
