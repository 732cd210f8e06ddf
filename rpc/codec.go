package rpc

import (
	"fmt"
	"math"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
	"penstock/rpc/wire"
)

// decode makes a request of the items in; their keys stay where they are.
func (c *checkCall) decode(in []*penstockv1.Item, op cluster.Op, inlines *door.Inlines) error {
	if len(in) > cluster.MaxItems { // Node.Check refuses them, and need not see them for that
		return &cluster.InputError{
			Field:  "items",
			Reason: fmt.Sprintf("has %d items; 1 to %d are accepted", len(in), cluster.MaxItems),
		}
	}
	c.begin(len(in))
	for i, it := range in {
		to := &c.request.Items[i]
		*to = cluster.Item{Limit: it.Limit, Key: wire.Borrow(it.Key), Plan: it.Plan, Op: op}
		switch {
		case it.Cost != nil:
			to.Cost = *it.Cost
		case op == cluster.OpTake:
			to.Cost = 1
		}
		if it.Id != nil {
			to.ID = cluster.ID{Origin: it.Id.Origin, Sequence: it.Id.Sequence}
		}
		var err error
		if to.Terms, err = readTerms(i, terms{
			it.Report, it.Drain, it.Strict, it.AtMs, it.MaxDelayMs,
		}); err != nil {
			return err
		}
		if it.Inline != nil {
			if it.Limit != "" {
				return &cluster.InputError{
					Field:  fmt.Sprintf("items[%d].limit", i),
					Reason: "is given together with inline; give one of the two",
				}
			}
			if op == cluster.OpTake {
				to.Inline, err = inlines.Bring(inlineSpec(it.Inline), c.from)
			} else {
				to.Inline, err = inlines.Get(inlineSpec(it.Inline), c.from)
			}
			if err != nil {
				return door.InlineError(i, err)
			}
		}
	}
	return nil
}

// terms are what an item asks for besides a cost, as doors read it.
type terms struct {
	report, drain, strict bool
	atMs, maxDelayMs      *int64 // nil: not said
}

// readTerms checks what the i-th item asks for. Whether its limit has that, Node.Check says.
func readTerms(i int, in terms) (cluster.Terms, error) {
	t := cluster.Terms{Report: in.report, Drain: in.drain, Strict: in.strict}
	if in.maxDelayMs != nil {
		t.Bounded, t.MaxDelay = true, door.FromMillis(*in.maxDelayMs)
	}
	if in.atMs == nil {
		return t, nil
	}
	if *in.atMs < 0 {
		return t, &cluster.InputError{
			Field:  fmt.Sprintf("items[%d].at_ms", i),
			Reason: fmt.Sprintf("is %d; give milliseconds since 1970", *in.atMs),
		}
	}
	t.Timed, t.At = true, limiter.Millis(*in.atMs)
	return t, nil
}

// inlineSpec is in in the words of package limiter, which says what is wrong with it.
func inlineSpec(in *penstockv1.InlineLimit) limiter.Spec {
	s := limiter.Spec{
		Name:          in.Name,
		Algorithm:     limiter.Algorithm(small(int32(in.Algorithm))),
		Limit:         in.Limit,
		Per:           door.FromMillis(in.PerMs),
		Burst:         in.Burst,
		CountRejected: in.CountRejected,
		MinGap:        door.FromMillis(in.MinGapMs),
		Refill:        in.Refill,
		Strict:        in.Strict,
		Drain:         in.Drain,
		Buckets:       int(in.Buckets),
		Lenient:       in.Lenient,
		ClientTime:    in.ClientTime,
		Sessions:      in.Sessions,
		Calendar:      limiter.Calendar(small(int32(in.Calendar))),
		TimeZone:      in.TimeZone,
		MaxDebt:       in.MaxDebt,
		Consistency:   limiter.Consistency(orFirst(int32(in.Consistency))),
		Sync:          in.Sync,
		OnPartition:   limiter.OnPartition(orFirst(int32(in.OnPartition))),
		OnDeny:        limiter.OnDeny(orFirst(int32(in.OnDeny))),
		MaxDelay:      door.FromMillis(in.MaxDelayMs),
		OnError:       limiter.OnError(orFirst(int32(in.OnError))),
		DryRun:        in.DryRun,
		Unsettled:     limiter.Unsettled(orFirst(int32(in.Unsettled))),
		Answers: limiter.Answers{
			Spread: int(in.SpreadPercent), Tag: in.Tag, Tier: int(in.Tier),
		},
	}
	s.Anchor = limiter.DefaultAnchor(s.Algorithm)
	if in.Anchor != penstockv1.Anchor_ANCHOR_UNSPECIFIED {
		s.Anchor = limiter.Anchor(orFirst(int32(in.Anchor)))
	}
	return s
}

// orFirst is what an enum of the wire is called here, where the first name is 0 and the one that
// means the default is none.
func orFirst(v int32) uint8 {
	if v == 0 {
		return 0
	}
	return small(v - 1)
}

// small keeps an enum that this release does not know unknown, instead of cutting it to one that it
// knows.
func small(v int32) uint8 {
	if v < 0 || v > math.MaxUint8 {
		return math.MaxUint8
	}
	return uint8(v)
}

// encode makes the decisions of a response.
func encode(out []cluster.Decision) []*penstockv1.Decision {
	all := make([]*penstockv1.Decision, len(out))
	for i := range out {
		d := &out[i]
		all[i] = &penstockv1.Decision{
			Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
			RetryAfterMs: door.Millis(d.RetryAfter), ResetAfterMs: door.Millis(d.ResetAfter),
			DelayMs:   door.Millis(d.Delay),
			LimitName: d.Rule.Name, Owner: d.Owner, Source: encodeSource(d.Source),
			Degraded: d.Degraded, Bound: d.Bound, Shadow: d.Shadow,
			Restarted: door.Restarted(d), Override: d.Rule.Override,
			Drained: d.Drained, SessionMs: int64(d.Session),
			Tag: d.Tag(), Tier: int32(d.Tier()), Denial: encodeDenial(d),
		}
	}
	return all
}

// encodeDenial is nil if the limit has no words of its own.
func encodeDenial(d *cluster.Decision) *penstockv1.Denial {
	said := d.Said()
	if said.Status == 0 && said.Body == "" {
		return nil
	}
	return &penstockv1.Denial{
		Status: int32(said.Status), ContentType: said.ContentType, Body: said.Body,
	}
}

func encodeSource(s cluster.Source) penstockv1.Source {
	return penstockv1.Source(s) + penstockv1.Source_SOURCE_OWNER
}
