package notation

import (
	"math"

	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
)

// LimitMessage is s as ReadLimit reads it.
func LimitMessage(s *limiter.Spec) *penstockv1.InlineLimit {
	out := &penstockv1.InlineLimit{
		Name: s.Name, Algorithm: penstockv1.Algorithm(s.Algorithm), Limit: s.Limit,
		PerMs: s.Per.Milliseconds(), Burst: s.Burst, CountRejected: s.CountRejected,
		OnError: penstockv1.OnError(s.OnError) + 1, MinGapMs: s.MinGap.Milliseconds(),
		Refill: s.Refill, Strict: s.Strict, Drain: s.Drain, Buckets: int32(s.Buckets),
		Lenient: s.Lenient, ClientTime: s.ClientTime, Sessions: s.Sessions,
		Calendar: penstockv1.Calendar(s.Calendar), TimeZone: s.TimeZone, MaxDebt: s.MaxDebt,
		Consistency: penstockv1.Consistency(s.Consistency) + 1, Sync: s.Sync,
		OnPartition: penstockv1.OnPartition(s.OnPartition) + 1,
		OnDeny:      penstockv1.OnDeny(s.OnDeny) + 1, DryRun: s.DryRun,
		Unsettled:     penstockv1.Unsettled(s.Unsettled) + 1,
		SpreadPercent: int32(s.Answers.Spread), Tag: s.Answers.Tag, Tier: int32(s.Answers.Tier),
		MaxDelayMs: s.MaxDelay.Milliseconds(),
	}
	if s.Anchor != limiter.DefaultAnchor(s.Algorithm) {
		out.Anchor = penstockv1.Anchor(s.Anchor) + 1
	}
	if s.Calendar != 0 {
		out.PerMs = 0
	}
	return out
}

// ReadLimit is in in the words of package limiter, which says what is wrong with it.
func ReadLimit(in *penstockv1.InlineLimit) limiter.Spec {
	s := limiter.Spec{
		Name: in.Name, Algorithm: limiter.Algorithm(small(int32(in.Algorithm))), Limit: in.Limit,
		Per: door.FromMillis(in.PerMs), Burst: in.Burst, CountRejected: in.CountRejected,
		MinGap: door.FromMillis(in.MinGapMs), Refill: in.Refill, Strict: in.Strict,
		Drain: in.Drain, Buckets: int(in.Buckets), Lenient: in.Lenient, ClientTime: in.ClientTime,
		Sessions: in.Sessions, Calendar: limiter.Calendar(small(int32(in.Calendar))),
		TimeZone: in.TimeZone, MaxDebt: in.MaxDebt, Sync: in.Sync, DryRun: in.DryRun,
		Consistency: limiter.Consistency(orFirst(int32(in.Consistency))),
		OnPartition: limiter.OnPartition(orFirst(int32(in.OnPartition))),
		OnDeny:      limiter.OnDeny(orFirst(int32(in.OnDeny))),
		MaxDelay:    door.FromMillis(in.MaxDelayMs),
		OnError:     limiter.OnError(orFirst(int32(in.OnError))),
		Unsettled:   limiter.Unsettled(orFirst(int32(in.Unsettled))),
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
