package envoy

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"penstock/rpc/access"
	"penstock/rpc/audit"
)

// Promise: what an Envoy gives back is recorded, over gRPC and in JSON, and nothing else that it
// asks.
func TestRefundsOfEnvoysAreRecorded(t *testing.T) {
	set, err := access.Parse([]byte("clients:\n" +
		"- {name: d, token: token-of-client-d, check: {limits: [d]}, refund: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	who := access.New(set).Token([]byte("token-of-client-d"))
	ctx := access.With(context.Background(), who)
	door, _ := alone(t, perUser)
	lines := new(strings.Builder)
	door.Record(audit.New(lines, slog.New(slog.DiscardHandler)))
	for hits, want := range map[string]string{"": "", "-1": `"units":1,`} {
		_, in := readRequest(t, "0s: d | user=x"+hits)
		lines.Reset()
		if _, err := door.ShouldRateLimit(ctx, in); err != nil {
			t.Fatal(err)
		}
		checkRefund(t, "gRPC"+hits, lines.String(), want)
	}
	lines.Reset()
	r := httptest.NewRequest("POST", "/json", strings.NewReader(`{"domain":"d","descriptors":[`+
		`{"entries":[{"key":"user","value":"x"}],"isNegativeHits":true}]}`))
	answer := httptest.NewRecorder()
	if door.ServeHTTP(answer, r.WithContext(ctx)); answer.Code != http.StatusOK {
		t.Fatal(answer.Code, answer.Body)
	}
	checkRefund(t, "JSON", lines.String(), `"from":"192.0.2.1:1234"`)
}

// checkRefund compares what was recorded with what a refund says; want is empty if there is none.
func checkRefund(t *testing.T, what, got, want string) {
	t.Helper()
	if want == "" {
		if got != "" {
			t.Errorf("%s: recorded as %s", what, got)
		}
		return
	}
	for _, part := range []string{
		want, `"who":"d (token `, `"action":"refund","target":"envoy/d"`, `"before":`, `"after":`,
	} {
		if strings.Count(got, part) != 1 {
			t.Errorf("%s: recorded as %q, without %s", what, got, part)
		}
	}
}
