package envoy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/rpc/door"
)

// question is what becomes of one descriptor.
type question struct {
	policy.Match // Rule is nil if the descriptor meets none, or brings its limit along
	hits         int64
	current      *ratelimitv3.RateLimitResponse_RateLimit // nil: no limit applies
	limit        *limiter.Limit                           // nil: there is nothing to count
	per          time.Duration
	brought      bool // the descriptor brings limit along
	item         int  // of the request to the node; -1: nothing is asked

	decision cluster.Decision
}

// ask makes the questions of a request.
func ask(d *policy.Domain, in *ratelimitv3.RateLimitRequest) ([]question, error) {
	questions := make([]question, len(in.Descriptors))
	var entries []policy.Entry
	for i, descriptor := range in.Descriptors {
		entries = entries[:0]
		for _, e := range descriptor.GetEntries() {
			entries = append(entries, policy.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		q := &questions[i]
		q.item, q.hits = -1, hitsOf(in, descriptor)
		if descriptor.GetLimit() == nil {
			q.meet(d.Match(entries))
			continue
		}
		if err := q.override(d, entries, descriptor.Limit); err != nil {
			return nil, door.Wrong(fmt.Sprintf("descriptors[%d].limit", i), "%v", err)
		}
	}
	replace(questions)
	return questions, nil
}

// hitsOf is what a descriptor costs: its own hits, which may be 0 and negative, else those of the
// request, else 1.
func hitsOf(in *ratelimitv3.RateLimitRequest, descriptor *commonv3.RateLimitDescriptor) int64 {
	hits := max(1, int64(in.HitsAddend))
	if own := descriptor.GetHitsAddend(); own != nil {
		hits = int64(min(own.Value, math.MaxInt64))
	}
	if descriptor.GetIsNegativeHits() {
		return -hits
	}
	return hits
}

// meet takes the limit that the files have for a descriptor.
func (q *question) meet(m policy.Match) {
	q.Match = m
	if m.Rule == nil || m.Rule.Unlimited {
		return
	}
	q.limit = m.Rule.Limit
	q.per, _ = policy.EnvoyUnit(m.Rule.Unit)
	q.current = &ratelimitv3.RateLimitResponse_RateLimit{
		Name: m.Rule.Name, RequestsPerUnit: m.Rule.Requests, Unit: unit(m.Rule.Unit),
	}
}

// override takes the limit that a descriptor brings along, in place of all that the files say.
func (q *question) override(d *policy.Domain, entries []policy.Entry,
	in *commonv3.RateLimitDescriptor_RateLimitOverride,
) (err error) {
	name := strings.ToLower(in.GetUnit().String())
	per, known := policy.EnvoyUnit(name)
	if !known {
		return fmt.Errorf("has the unit %v; SECOND, MINUTE, HOUR, DAY, MONTH and YEAR are "+
			"accepted", in.GetUnit())
	}
	times := int64(max(1, in.GetUnitMultiplier().GetValue()))
	if times > int64(limiter.MaxPer/per) {
		return fmt.Errorf("lasts %d times a %s; %d days are the most", times, name,
			limiter.MaxPer/(24*time.Hour))
	}
	q.per = time.Duration(times) * per
	q.current = &ratelimitv3.RateLimitResponse_RateLimit{
		RequestsPerUnit: in.GetRequestsPerUnit(),
		Unit:            unit(name),
	}
	if in.GetUnitMultiplier() != nil {
		q.current.UnitMultiplier = wrapperspb.UInt32(uint32(times))
	}
	q.Key, q.brought = d.Key(entries), true
	if in.GetRequestsPerUnit() > 0 {
		q.limit, err = d.NewLimit(int64(in.GetRequestsPerUnit()), q.per, false)
	}
	return err
}

// unit is what the answers call a unit.
func unit(name string) ratelimitv3.RateLimitResponse_RateLimit_Unit {
	return ratelimitv3.RateLimitResponse_RateLimit_Unit(
		ratelimitv3.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(name)])
}

// replace lets the limits go that another one of the request replaces: they are neither charged nor
// said.
func replace(questions []question) {
	var replaced []string
	for i := range questions {
		if r := questions[i].Rule; r != nil {
			replaced = append(replaced, r.Replaces...)
		}
	}
	for i := range questions {
		if q := &questions[i]; q.Rule != nil && q.Rule.Name != "" && !q.Rule.Unlimited &&
			slices.Contains(replaced, q.Rule.Name) {
			*q = question{item: -1, hits: q.hits}
		}
	}
}

// zero reports whether q meets a limit of 0, which no limiter has and which needs none.
func (q *question) zero() bool { return q.current != nil && q.current.RequestsPerUnit == 0 }

// hidden reports whether a refusal of q does not refuse the request by itself.
func (q *question) hidden() bool { return q.Rule != nil && (q.Rule.Shadow || q.Rule.Quota) }

// gather makes one request to the node of all that there is to count. If all shall be charged or
// nothing, and a limit of 0 refuses, then nothing is: what the others would say is only looked up.
func gather(questions []question, atomic bool) *cluster.Request {
	r := &cluster.Request{Atomic: atomic}
	op := cluster.OpTake
	for i := range questions {
		if q := &questions[i]; atomic && q.zero() && q.hits > 0 && !q.hidden() {
			op, r.Atomic = cluster.OpPeek, false
		}
	}
	for i := range questions {
		if q := &questions[i]; q.limit != nil {
			q.item = len(r.Items)
			r.Items = append(r.Items, cluster.Item{
				Inline: q.limit, Key: q.Key,
				Cost: q.hits, Op: op,
			})
		}
	}
	return r
}
