package envoy

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// These transcripts are what envoyproxy/ratelimit is documented to do, request by request: its
// README.md, and what rls.proto says of the fields that it reads. The descriptors are those that
// Envoy's actions make: generic_key, remote_address, request_headers with the descriptor_key of a
// route, header_value_match.
//
// A request is "at: domain hits? | descriptor | descriptor…". A descriptor is
// "key=value,key=value", and may end with "+2" (hits of its own), "-2" (given back) and
// "@10/minute" (a limit of its own). The answer follows "=>", in the next line if there is no room:
// the overall code, and for each descriptor its code, and "remaining/limit unit reset name".
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name, config string
		transcript   string
	}{
		{"a limit per address, and an address that is shut out (README, example 3)", `
domain: edge_proxy_per_ip
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: remote_address
    value: 50.0.0.5
    rate_limit: {unit: second, requests_per_unit: 0}`, `
0.0s: edge_proxy_per_ip | remote_address=50.0.0.1    => OK: OK 1/2 second 1
0.3s: edge_proxy_per_ip | remote_address=50.0.0.1    => OK: OK 0/2 second 1
0.9s: edge_proxy_per_ip | remote_address=50.0.0.1    => OVER_LIMIT: OVER_LIMIT 0/2 second 1
0.9s: edge_proxy_per_ip | remote_address=50.0.0.2    => OK: OK 1/2 second 1
0.9s: edge_proxy_per_ip | remote_address=50.0.0.5    => OVER_LIMIT: OVER_LIMIT 0/0 second 1
0.9s: edge_proxy_per_ip | remote_address=50.0.0.5+0  => OK: OK 0/0 second 1
1.0s: edge_proxy_per_ip | remote_address=50.0.0.1    => OK: OK 1/2 second 1`},

		{"several descriptors are an OR, each charged by itself (README, example 2)", `
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 1}
  - key: to_number
    rate_limit: {unit: day, requests_per_unit: 4}`, `
3600s: messaging | message_type=marketing,to_number=1 | to_number=1
  => OK: OK 0/1 day 82800; OK 3/4 day 82800
3600s: messaging | message_type=marketing,to_number=1 | to_number=1
  => OVER_LIMIT: OVER_LIMIT 0/1 day 82800; OK 2/4 day 82800
3600s: messaging | message_type=marketing,to_number=2 | to_number=2
  => OK: OK 0/1 day 82800; OK 3/4 day 82800
3600s: messaging | to_number=1                                      => OK: OK 1/4 day 82800
3600s: messaging | message_type=other,to_number=1 | to_number=1     => OK: OK; OK 0/4 day 82800
3600s: messaging | to_number=1
  => OVER_LIMIT: OVER_LIMIT 0/4 day 82800`},

		{"depth of request and file must be the same (README, example 4)", `
domain: example4
descriptors:
  - {key: key, value: value, rate_limit: {requests_per_unit: 300, unit: second}}
  - {key: deep, descriptors: [{key: subkey, rate_limit: {requests_per_unit: 1, unit: second}}]}`, `
0s: example4 | key=value,subkey=subvalue => OK: OK
0s: example4 | key=value                 => OK: OK 299/300 second 1
0s: example4 | deep=1                    => OK: OK
0s: example4 | deep=1,subkey=2           => OK: OK 0/1 second 1
0s: example4 | other=1                   => OK: OK
0s: stranger | key=value | key=value     => OK: OK; OK
0s: stranger | key=value@1/second        => OK: OK`},

		{"unlimited (README, example 5)", `
domain: internal
descriptors:
  - {key: ldap, rate_limit: {unlimited: true}}
  - {key: azure, rate_limit: {unit: minute, requests_per_unit: 100}}`, `
15s: internal 70 | ldap=x | azure=x => OK: OK unlimited; OK 30/100 minute 45`},

		{"shadow_mode is evaluated, and never refuses (README, example 6)", `
domain: example6
descriptors:
  - key: service
    descriptors:
      - {key: user, value: user-a,
         rate_limit: {requests_per_unit: 1, unit: second}, shadow_mode: true}
      - {key: user, value: user-b, rate_limit: {requests_per_unit: 1, unit: second}}`, `
0s: example6 | service=auth,user=user-a => OK: OK 0/1 second 1
0s: example6 | service=auth,user=user-a => OK: OK 0/1 second 1
0s: example6 | service=auth,user=user-b => OK: OK 0/1 second 1
0s: example6 | service=auth,user=user-b => OVER_LIMIT: OVER_LIMIT 0/1 second 1`},

		{"replaces: the limit of that name is neither asked nor charged (README, example 7)", `
domain: example7
descriptors:
  - {key: key_1, value: value_1, descriptors: [
       {key: user, value: bkthomps,
        rate_limit: {name: specific_limit, requests_per_unit: 2, unit: hour}}]}
  - {key: key_2, value: value_2, descriptors: [
       {key: user, value: bkthomps,
        rate_limit: {replaces: [{name: specific_limit}], requests_per_unit: 3, unit: hour}}]}`, `
0s: example7 | key_1=value_1,user=bkthomps
  => OK: OK 1/2 hour 3600 specific_limit
0s: example7 | key_1=value_1,user=bkthomps | key_2=value_2,user=bkthomps
  => OK: OK; OK 2/3 hour 3600
0s: example7 | key_2=value_2,user=bkthomps | key_1=value_1,user=bkthomps
  => OK: OK 1/3 hour 3600; OK
0s: example7 | key_1=value_1,user=bkthomps
  => OK: OK 0/2 hour 3600 specific_limit
0s: example7 | key_1=value_1,user=bkthomps
  => OVER_LIMIT: OVER_LIMIT 0/2 hour 3600 specific_limit`},

		{
			"wildcards: each value by itself, or all as one with share_threshold (README, " +
				"example 9)",
			`
domain: example9
descriptors:
  - {key: key1, value: value*, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: path, value: /files/*, share_threshold: true,
     rate_limit: {unit: minute, requests_per_unit: 2}}`, `
0s: example9 | key1=value_1   => OK: OK 0/1 minute 60
0s: example9 | key1=value_2   => OK: OK 0/1 minute 60
0s: example9 | key1=value_1   => OVER_LIMIT: OVER_LIMIT 0/1 minute 60
0s: example9 | key1=other     => OK: OK
0s: example9 | path=/files/a  => OK: OK 1/2 minute 60
0s: example9 | path=/files/b  => OK: OK 0/2 minute 60
0s: example9 | path=/files/c  => OVER_LIMIT: OVER_LIMIT 0/2 minute 60`,
		},

		{"quota_mode: over limit only if all quotas are", `
domain: llm
descriptors:
  - {key: backend, value: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: backend, value: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 4}}`, `
0s: llm | backend=a | backend=b | tenant=x
  => OK: OK 0/1 minute 60; OK 1/2 minute 60; OK 3/4 minute 60
0s: llm | backend=a | backend=b | tenant=x
  => OK: OVER_LIMIT 0/1 minute 60; OK 0/2 minute 60; OK 2/4 minute 60
0s: llm | backend=a | backend=b | tenant=x
  => OVER_LIMIT: OVER_LIMIT 0/1 minute 60; OVER_LIMIT 0/2 minute 60; OK 1/4 minute 60
0s: llm | tenant=x+3 | backend=c           => OVER_LIMIT: OVER_LIMIT 0/4 minute 60; OK`},

		{"hits: of the request, of the descriptor, none, and given back", `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: minute, requests_per_unit: 10}}`, `
0s: d   | k=a         => OK: OK 9/10 minute 60
0s: d 0 | k=a         => OK: OK 8/10 minute 60
0s: d 3 | k=a         => OK: OK 5/10 minute 60
0s: d 3 | k=a+2 | k=b => OK: OK 3/10 minute 60; OK 7/10 minute 60
0s: d 3 | k=a+0       => OK: OK 3/10 minute 60
0s: d   | k=a-2       => OK: OK 5/10 minute 60
0s: d 4 | k=a-        => OK: OK 9/10 minute 60
0s: d   | k=a-5       => OK: OK 10/10 minute 60
0s: d   | k=a+10      => OK: OK 0/10 minute 60
0s: d   | k=a+0       => OK: OK 0/10 minute 60`},

		{"a price that is known afterwards: who asked with 0 hears that it was too much, " +
			"whatever it was", `
domain: tokens
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000}}`, `
0s: tokens    | user=u+0                 => OK: OK 1000/1000 hour 3600
0s: tokens    | user=u+900               => OK: OK 100/1000 hour 3600
0s: tokens    | user=u+0                 => OK: OK 100/1000 hour 3600
0s: tokens    | user=u+5000              => OVER_LIMIT: OVER_LIMIT 0/1000 hour 3600
9s: tokens    | user=u+0                 => OVER_LIMIT: OVER_LIMIT 0/1000 hour 3591
9s: tokens    | user=u                   => OVER_LIMIT: OVER_LIMIT 0/1000 hour 3591
9s: tokens    | user=v+18446744073709551615 => OVER_LIMIT: OVER_LIMIT 0/1000 hour 3591
3600s: tokens | user=u+0                 => OK: OK 1000/1000 hour 3600`},

		{"an override is used as it is, in place of all that the file says", `
domain: d
descriptors:
  - {key: k, value: a, shadow_mode: true,
     rate_limit: {name: n, unit: minute, requests_per_unit: 1}}`, `
0s:  d | k=a@2/minute   => OK: OK 1/2 minute 60
0s:  d | k=a@2/minute   => OK: OK 0/2 minute 60
0s:  d | k=a@2/minute   => OVER_LIMIT: OVER_LIMIT 0/2 minute 60
0s:  d | k=a            => OK: OK 0/1 minute 60 n
0s:  d | k=a@9/hour     => OK: OK 8/9 hour 3600
0s:  d | x=y@0/day      => OVER_LIMIT: OVER_LIMIT 0/0 day 86400
30s: d | x=y@3/15minute => OK: OK 2/3 15 minute 870
30s: d | x=y@3/month    => OK: OK 2/3 month 2591970`},

		{"windows begin at multiples of the unit since 1970", `
domain: units
descriptors:
  - {key: u, value: week, rate_limit: {unit: WEEK, requests_per_unit: 9}}
  - {key: u, value: month, rate_limit: {unit: Month, requests_per_unit: 9}}
  - {key: u, value: year, rate_limit: {unit: year, requests_per_unit: 9}}`, `
1h:     units | u=week | u=month | u=year
  => OK: OK 8/9 week 601200; OK 8/9 month 2588400; OK 8/9 year 31532400
168h:   units | u=week | u=month | u=year
  => OK: OK 8/9 week 604800; OK 7/9 month 1987200; OK 7/9 year 30931200
720h:   units | u=week | u=month | u=year
  => OK: OK 8/9 week 432000; OK 8/9 month 2592000; OK 6/9 year 28944000
8760h:  units | u=week | u=month | u=year
  => OK: OK 8/9 week 518400; OK 8/9 month 2160000; OK 8/9 year 31536000`},

		{"atomic (ours): all descriptors are charged, or none", `
domain: all
atomic: true
descriptors:
  - {key: k, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: k, value: none, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}`, `
0s: all | k=a+2 | k=b   => OK: OK 1/3 minute 60; OK 2/3 minute 60
0s: all | k=a+2 | k=b   => OVER_LIMIT: OVER_LIMIT 1/3 minute 60; OK 2/3 minute 60
0s: all | k=a+0 | k=b+0 => OK: OK 1/3 minute 60; OK 2/3 minute 60
0s: all | k=b | k=none  => OVER_LIMIT: OK 2/3 minute 60; OVER_LIMIT 0/0 minute 60
0s: all | k=b+0         => OK: OK 2/3 minute 60
0s: all | k=b | s=x     => OK: OK 1/3 minute 60; OK 0/1 minute 60
0s: all | k=b | s=x     => OK: OK 0/3 minute 60; OK 0/1 minute 60
0s: all | k=b | s=x     => OVER_LIMIT: OVER_LIMIT 0/3 minute 60; OK 0/1 minute 60
0s: all | k=b | s=y     => OVER_LIMIT: OVER_LIMIT 0/3 minute 60; OK 1/1 minute 60
0s: all | s=y | k=none  => OVER_LIMIT: OK 1/1 minute 60; OVER_LIMIT 0/0 minute 60
0s: all | k=a+5 | k=b   => OVER_LIMIT: OVER_LIMIT 1/3 minute 60; OVER_LIMIT 0/3 minute 60
0s: all | k=a+2 | k=none
  => OVER_LIMIT: OVER_LIMIT 1/3 minute 60; OVER_LIMIT 0/0 minute 60`},
	} {
		t.Run(c.name, func(t *testing.T) {
			door, clock := alone(t, c.config)
			transcript := strings.ReplaceAll(strings.TrimSpace(c.transcript), "\n  =>", "  =>")
			for line := range strings.Lines(transcript) {
				request, want, _ := strings.Cut(strings.TrimSpace(line), "=>")
				at, in := readRequest(t, request)
				clock.set(at)
				out, err := door.ShouldRateLimit(context.Background(), in)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				if got := writeResponse(out); got != strings.TrimSpace(want) {
					t.Errorf("%s\n got %s\nwant %s", strings.TrimSpace(request), got,
						strings.TrimSpace(want))
				}
			}
		})
	}
}

func readRequest(t testing.TB, text string) (time.Duration, *ratelimitv3.RateLimitRequest) {
	t.Helper()
	when, rest, _ := strings.Cut(text, ":")
	at, err := time.ParseDuration(when)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(rest, "|")
	domain, hits, _ := strings.Cut(strings.TrimSpace(parts[0]), " ")
	n, _ := strconv.Atoi(strings.TrimSpace(hits))
	in := &ratelimitv3.RateLimitRequest{Domain: domain, HitsAddend: uint32(n)}
	for _, part := range parts[1:] {
		in.Descriptors = append(in.Descriptors, readDescriptor(t, strings.TrimSpace(part)))
	}
	return at, in
}

func readDescriptor(t testing.TB, text string) *commonv3.RateLimitDescriptor {
	t.Helper()
	d := &commonv3.RateLimitDescriptor{}
	text, limit, overridden := strings.Cut(text, "@")
	if overridden {
		requests, unit, _ := strings.Cut(limit, "/")
		n, err := strconv.Atoi(requests)
		if err != nil {
			t.Fatal(err)
		}
		d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(n)}
		name := strings.TrimLeft(unit, "0123456789")
		if times := strings.TrimSuffix(unit, name); times != "" {
			n, _ := strconv.Atoi(times)
			d.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(n))
		}
		d.Limit.Unit = typev3.RateLimitUnit(typev3.RateLimitUnit_value[strings.ToUpper(name)])
	}
	if i := strings.LastIndexAny(text, "+-"); i > strings.LastIndex(text, "=") &&
		!strings.ContainsAny(text[i+1:], "abcdefghijklmnopqrstuvwxyz") {
		d.IsNegativeHits = text[i] == '-'
		if text[i+1:] != "" {
			n, err := strconv.ParseUint(text[i+1:], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			d.HitsAddend = wrapperspb.UInt64(n)
		}
		text = text[:i]
	}
	for entry := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(entry, "=")
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func writeResponse(out *ratelimitv3.RateLimitResponse) string {
	texts := make([]string, len(out.Statuses))
	for i, s := range out.Statuses {
		text := s.Code.String()
		switch l := s.CurrentLimit; {
		case l != nil:
			text += fmt.Sprintf(" %d/%d ", s.LimitRemaining, l.RequestsPerUnit)
			if l.UnitMultiplier != nil {
				text += fmt.Sprint(l.UnitMultiplier.Value, " ")
			}
			text += fmt.Sprintf("%s %d %s", strings.ToLower(l.Unit.String()),
				s.DurationUntilReset.Seconds, l.Name)
		case s.LimitRemaining == 1<<32-1:
			text += " unlimited"
		case s.LimitRemaining != 0 || s.DurationUntilReset != nil:
			text += " " + s.String()
		}
		texts[i] = strings.TrimSpace(text)
	}
	return out.OverallCode.String() + ": " + strings.Join(texts, "; ")
}
