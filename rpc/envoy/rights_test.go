package envoy

import (
	"context"
	"errors"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/rpc/access"
)

// Promise: an Envoy asks about the domains that its client may check, a refund is a right of its
// own, and what is refused charges nothing. So it is at both services.
func TestRightsOfEnvoys(t *testing.T) {
	set, err := access.Parse([]byte(`clients:
- {name: d, token: token-of-client-d, check: {limits: [d]}}
- {name: q, token: token-of-client-q, check: {limits: [q]}}
- {name: i, token: token-of-client-i, check: {limits: [q], inline: true}}
- {name: b, token: token-of-client-b, check: {limits: [d], inline: true}}
`))
	if err != nil {
		t.Fatal(err)
	}
	clients := access.New(set)
	d, q := clients.Token([]byte("token-of-client-d")), clients.Token([]byte("token-of-client-q"))
	door, _ := alone(t, perUser)
	ask := func(who *access.Ticket, hits string) (left string, err error) {
		_, in := readRequest(t, "0s: d | user=x"+hits)
		out, err := door.ShouldRateLimit(access.With(context.Background(), who), in)
		if err != nil {
			return "", err
		}
		return writeResponse(out), nil
	}
	refused := func(what string, err error) {
		t.Helper()
		var denied *access.Denied
		if status.Code(err) != codes.PermissionDenied && !errors.As(err, &denied) {
			t.Errorf("%s: %v, want that a right is missing", what, err)
		}
	}
	_, err = ask(q, "")
	refused("another domain", err)
	_, err = ask(d, "-1")
	refused("a refund", err)
	if left, err := ask(d, ""); err != nil || left != "OK: OK 1/2 hour 3600" {
		t.Errorf("the first of 2: %s, %v", left, err)
	}

	// a limit that a descriptor brings along shares the counters of its domain
	bring := func(token string) error {
		_, in := readRequest(t, "0s: d | user=x")
		in.Descriptors[0].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: 9, Unit: typev3.RateLimitUnit_HOUR,
		}
		_, err := door.ShouldRateLimit(
			access.With(context.Background(), clients.Token([]byte(token))), in)
		return err
	}
	refused("a limit that is brought to another domain", bring("token-of-client-i"))
	refused("a limit that is brought without the right", bring("token-of-client-d"))
	if err := bring("token-of-client-b"); err != nil {
		t.Errorf("a limit that is brought to a domain of the client: %v", err)
	}

	quota, _ := alone(t, quotaLimits)
	report := func(who *access.Ticket) (*quotas, error) {
		s := &quotas{door: quota, who: who, buckets: map[string]*bucket{}}
		_, err := s.hear(&quotav3.RateLimitQuotaUsageReports{
			Domain: "q",
			BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
				usage(quotaBucket("user", "x"), time.Second, 1, 0),
			},
		})
		return s, err
	}
	s, err := report(d)
	refused("another domain's quota", err)
	if len(s.buckets) != 0 {
		t.Errorf("%d buckets of a client without the right", len(s.buckets))
	}
	if s, err = report(q); err != nil || len(s.buckets) != 1 {
		t.Errorf("the quota of q: %d buckets, %v", len(s.buckets), err)
	}

	clients.Replace(access.Alone("token-of-another-client"))
	if _, err = ask(d, ""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a token that was taken away: %v", err)
	}
	if _, err = report(q); !errors.Is(err, access.ErrUnknown) {
		t.Errorf("a token that was taken away, at the quota service: %v", err)
	}
}
