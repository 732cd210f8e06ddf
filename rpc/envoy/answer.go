package envoy

import (
	"maps"
	"math"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
)

// decide takes the node's decision, or makes that of a limit of 0.
func (q *question) decide(now limiter.Instant, decisions []cluster.Decision) {
	if q.current == nil {
		return
	}
	if q.item >= 0 {
		q.decision = decisions[q.item]
	} else {
		q.decision.Allowed = q.hits <= 0
	}
	if q.decision.ResetAfter <= 0 { // nobody counted: the window's end is known all the same
		q.decision.ResetAfter = q.per - time.Duration(int64(now)%int64(q.per))
	}
}

// over reports whether the limit of q refuses, also if nobody is told.
func (q *question) over() bool {
	return q.current != nil && (!q.decision.Allowed || q.decision.Shadow)
}

// status is what the answer says of q: all of it also for a refusal, since Envoy makes headers of
// it.
func (q *question) status() *ratelimitv3.RateLimitResponse_DescriptorStatus {
	s := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
	switch {
	case q.current != nil:
		s.CurrentLimit = q.current
		s.LimitRemaining = uint32(min(q.decision.Remaining, math.MaxUint32))
		s.DurationUntilReset = &durationpb.Duration{Seconds: seconds(q.decision.ResetAfter)}
		if q.over() && !(q.Rule != nil && q.Rule.Shadow) {
			s.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
	case q.Rule != nil: // unlimited
		s.LimitRemaining = math.MaxUint32
	}
	return s
}

// seconds is d in seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// answer says over limit if a descriptor is; those of quota_mode have a say only together, if all
// of them are.
func answer(d *policy.Domain, in *ratelimitv3.RateLimitRequest,
	questions []question,
) *ratelimitv3.RateLimitResponse {
	out := &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK,
		Statuses:    make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(questions)),
	}
	quotas, quotasOver, over := 0, 0, false
	for i := range questions {
		s := questions[i].status()
		out.Statuses[i] = s
		isOver := s.Code == ratelimitv3.RateLimitResponse_OVER_LIMIT
		switch r := questions[i].Rule; {
		case r != nil && r.Quota && !r.Unlimited:
			quotas++
			if isOver {
				quotasOver++
			}
		case isOver:
			over = true
		}
	}
	if over || quotas > 0 && quotas == quotasOver {
		out.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	if d.ResponseHeaders {
		out.ResponseHeadersToAdd = headers(questions, out.Statuses)
	}
	if d.ResponseMetadata {
		out.DynamicMetadata = metadata(in, questions, out.Statuses)
	}
	return out
}

// unlimited is the answer to n descriptors that meet no limit.
func unlimited(n int) *ratelimitv3.RateLimitResponse {
	return answer(&policy.Domain{}, nil, make([]question, n))
}

// headers tell of the tightest limit: one that refuses, else the one with the least remaining.
func headers(questions []question,
	statuses []*ratelimitv3.RateLimitResponse_DescriptorStatus,
) []*corev3.HeaderValue {
	var tightest *ratelimitv3.RateLimitResponse_DescriptorStatus
	refused := false
	for i, s := range statuses {
		if s.CurrentLimit == nil {
			continue
		}
		refuses := s.Code == ratelimitv3.RateLimitResponse_OVER_LIMIT && !questions[i].hidden()
		if tightest == nil || refuses && !refused ||
			refuses == refused && s.LimitRemaining < tightest.LimitRemaining {
			tightest, refused = s, refuses
		}
	}
	if tightest == nil {
		return nil
	}
	return []*corev3.HeaderValue{
		{Key: "RateLimit-Limit", Value: strconv.FormatUint(
			uint64(tightest.CurrentLimit.RequestsPerUnit), 10)},
		{Key: "RateLimit-Remaining", Value: strconv.FormatUint(uint64(tightest.LimitRemaining),
			10)},
		{Key: "RateLimit-Reset", Value: strconv.FormatInt(tightest.DurationUntilReset.Seconds, 10)},
	}
}

// metadata is the request once more, which quotas are over, and the metadata of the rules that let
// it pass, merged: of two values of one name the first counts.
func metadata(in *ratelimitv3.RateLimitRequest, questions []question,
	statuses []*ratelimitv3.RateLimitResponse_DescriptorStatus,
) *structpb.Struct {
	descriptors, violations, quota := []any{}, []any{}, false
	var merged map[string]any
	for i, d := range in.Descriptors {
		entries := []any{}
		for _, e := range d.GetEntries() {
			entries = append(entries, e.GetKey()+"="+e.GetValue())
		}
		about := map[string]any{"entries": entries}
		if d.GetLimit() != nil {
			about["limit"] = d.Limit.String()
		}
		if d.GetHitsAddend() != nil {
			about["hitsAddend"] = d.HitsAddend.Value
		}
		descriptors = append(descriptors, about)

		r, over := questions[i].Rule, statuses[i].Code == ratelimitv3.RateLimitResponse_OVER_LIMIT
		if r != nil && r.Quota {
			quota = true
			if over {
				violations = append(violations, i)
			}
		}
		if r != nil && !over {
			merged = merge(merged, r.Metadata)
		}
	}
	fields := map[string]any{
		"domain": in.Domain, "descriptors": descriptors,
		"quotaModeEnabled": quota,
	}
	if in.HitsAddend != 0 {
		fields["hitsAddend"] = in.HitsAddend
	}
	if len(violations) > 0 {
		fields["quotaModeViolations"] = violations
	}
	if len(merged) > 0 {
		fields["metadata"] = merged
	}
	out, err := structpb.NewStruct(fields)
	if err != nil {
		return nil // a text that is not UTF-8: neither gRPC nor JSON nor YAML lets one in
	}
	return out
}

// merge adds to a what only b has. Neither is changed.
func merge(a, b map[string]any) map[string]any {
	if len(a) == 0 {
		return b
	}
	sum := maps.Clone(a)
	for name, v := range b {
		old, known := sum[name]
		inner, isObject := old.(map[string]any)
		more, wasObject := v.(map[string]any)
		switch {
		case !known:
			sum[name] = v
		case isObject && wasObject:
			sum[name] = merge(inner, more)
		}
	}
	return sum
}
