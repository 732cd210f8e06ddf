package limiter

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// maybe is one of the values now and then, and else none.
func maybe[T any](draw *rand.Rand, values ...T) (x T) {
	if draw.IntN(8) > 0 {
		return x
	}
	return oneOf(draw, values...)
}

// drawnFields is a Spec of which each field may be so by itself.
func drawnFields(draw *rand.Rand) Spec {
	s := Spec{
		Name: "l", Algorithm: Algorithm(1 + draw.IntN(int(Concurrency))), Limit: 6,
		Per:           oneOf(draw, time.Minute, time.Minute, 6*time.Second+1),
		Burst:         maybe[int64](draw, 1, 9),
		Anchor:        maybe(draw, FirstHit),
		Calendar:      maybe(draw, Minutes, Days),
		TimeZone:      maybe(draw, "UTC", "Europe/Berlin", "Mars/Olympus"),
		CountRejected: maybe(draw, true),
		MinGap:        maybe(draw, time.Second),
		Refill:        maybe[int64](draw, 1, 9),
		Strict:        maybe(draw, true),
		Drain:         maybe(draw, true),
		ClientTime:    maybe(draw, true),
		Sessions:      maybe(draw, true),
		Lenient:       maybe(draw, true),
		MaxDebt:       maybe[int64](draw, 1, 9),
		Unsettled:     maybe(draw, UnsettledRelease),
		Consistency:   maybe(draw, Replicated, Leased),
		Sync:          maybe(draw, true),
		OnDeny:        maybe(draw, DenyShadow, DenyTag, DenyDeprioritize, DenyDelay),
		MaxDelay:      maybe(draw, time.Second),
		Parent:        maybe(draw, "l", "above"),
		Override:      maybe(draw, "a*", planWord+"pro"),
		Planned:       maybe(draw, true),
		Nameless:      maybe(draw, true),
		Inline:        maybe(draw, true),
		Unlimited:     maybe(draw, true),
	}
	if s.Per == time.Minute {
		s.Buckets = maybe(draw, 4)
	}
	if s.Calendar != 0 && draw.IntN(2) == 0 {
		s.Per = s.Calendar.Per()
	}
	s.Answers = Answers{
		Spread: maybe(draw, 10), Status: maybe(draw, 429), Body: maybe(draw, "no"),
		ContentType: maybe(draw, "text/html"), Tag: maybe(draw, "x"), Tier: maybe(draw, 2),
	}
	return s
}

// apart are the fields of s that its other fields do not go with.
func apart(s Spec) (fields []string) {
	is := func(list ...Algorithm) bool { return slices.Contains(list, s.Algorithm) }
	delays, denies := s.OnDeny == DenyDelay, s.OnDeny == DenyReject || s.OnDeny == DenyDelay
	anchored := is(FixedWindow, TokenBucket)
	stated := is(StatedWindow, StatedBucket)
	leased, replicated := s.Consistency == Leased, s.Consistency == Replicated
	unusual := s.CountRejected || s.Drain || s.Strict || s.ClientTime || s.Sessions
	for _, row := range []struct {
		field string
		wrong bool
	}{
		{"planned", s.Planned && !strings.HasPrefix(s.Override, planWord)},
		{"unlimited", s.Unlimited && s.Override == ""},
		{"content_type", s.Answers.ContentType != "" && s.Answers.Body == ""},
		{"tag", s.Answers.Tag != "" && s.OnDeny != DenyTag},
		{"tier", s.Answers.Tier != 0 && s.OnDeny != DenyDeprioritize},
		{"spread", s.Answers.Spread != 0 && !denies},
		{"status", s.Answers.Status != 0 && !denies},
		{"body", s.Answers.Body != "" && !denies},
		{"burst", s.Burst != 0 && !is(GCRA, LeakyBucket, StatedBucket)},
		{"anchor", s.Anchor == FirstHit && (!anchored || s.Calendar != 0)},
		{"per", s.Calendar != 0 && (!is(FixedWindow, StatedWindow) || s.Per != s.Calendar.Per())},
		{"per", s.ClientTime && s.Per%time.Millisecond != 0},
		{"time_zone", s.TimeZone != "" && (s.Calendar == 0 || s.TimeZone == "Mars/Olympus")},
		{"count_rejected", s.CountRejected && !is(FixedWindow, SlidingLog, SlidingCounter)},
		{"min_gap", s.MinGap != 0 && !is(SlidingLog)},
		{"refill", s.Refill != 0 && !is(TokenBucket)},
		{"strict", s.Strict && (!is(TokenBucket) || s.Anchor == Epoch)},
		{"drain", s.Drain && !anchored},
		{"client_time", s.ClientTime && !is(TokenBucket)},
		{"sessions", s.Sessions && (!is(TokenBucket) || s.Anchor == Epoch)},
		{"max_debt", s.MaxDebt != 0 && (stated || is(Concurrency))},
		{"on_deny", delays && (!is(GCRA, TokenBucket) || s.Strict || s.Drain || s.Sessions ||
			s.ClientTime || s.Consistency != Exact)},
		{"max_delay", s.MaxDelay != 0 && !delays},
		{"consistency", replicated && (stated || is(Concurrency))},
		{"consistency", leased && (is(LeakyBucket, Concurrency) || unusual || s.MinGap != 0)},
		{"unsettled", leased && s.Unsettled == UnsettledRelease},
		{"replication", s.Sync && replicated},
		{"buckets", s.Buckets != 0 && !is(SlidingCounter, Concurrency)},
		{"buckets", s.Per != time.Minute && s.Calendar == 0 && is(SlidingCounter, Concurrency)},
		{"lenient", s.Lenient && !is(SlidingCounter)},
		{"parent", s.Parent != "" && (s.Inline || s.Nameless || s.Parent == s.Name || unusual ||
			s.Consistency != Exact || delays || stated || is(Concurrency, LeakyBucket))},
	} {
		if row.wrong {
			fields = append(fields, row.field)
		}
	}
	return fields
}

// filled is s, which has no faults, with its defaults.
func filled(s Spec) Spec {
	switch s.Algorithm {
	case GCRA, StatedBucket:
		if s.Burst == 0 {
			s.Burst = s.Limit
		}
	case TokenBucket:
		if s.Refill == 0 {
			s.Refill = s.Limit
		}
	case SlidingCounter:
		if s.Buckets == 0 {
			s.Buckets = 60
		}
	case Concurrency:
		if s.Buckets == 0 {
			s.Buckets = 16
		}
	}
	if s.Consistency == Replicated && s.MaxDebt == 0 {
		if s.MaxDebt = 100 * max(s.Limit, s.Burst); s.Algorithm == SlidingLog {
			s.MaxDebt = 2048 - s.Limit
		}
	}
	if s.OnDeny == DenyDelay && s.MaxDelay == 0 {
		s.MaxDelay = 5 * time.Second
	}
	if s.OnDeny == DenyTag && s.Answers.Tag == "" {
		s.Answers.Tag = "over-limit"
	}
	if s.OnDeny == DenyDeprioritize && s.Answers.Tier == 0 {
		s.Answers.Tier = 1
	}
	if s.Answers.Body != "" && s.Answers.ContentType == "" {
		s.Answers.ContentType = "text/plain; charset=utf-8"
	}
	if s.Strict = s.Strict || s.Sessions; s.Calendar != 0 && s.TimeZone == "" {
		s.TimeZone = "UTC"
	}
	return s
}

// Promise: fields that are right by themselves are refused only where they do not go together, by
// the name of one of those that do not; else a limit is what its fields say, and their defaults.
func TestFieldsThatGoTogether(t *testing.T) {
	accepted, refused := 0, map[string]int{}
	for seed := range uint64(40000) {
		s := drawnFields(rand.New(rand.NewPCG(seed, 1)))
		want := apart(s)
		l, err := New(s)
		var bad *SpecError
		switch {
		case err == nil && len(want) == 0:
			if accepted++; l.Spec != filled(s) {
				t.Fatalf("seed %d:\n%+v is\n%+v, want\n%+v", seed, s, l.Spec, filled(s))
			}
		case !errors.As(err, &bad) || !slices.Contains(want, bad.Field):
			t.Fatalf("seed %d: %+v is refused by %v, want one of %v", seed, s, err, want)
		case len(want) == 1:
			refused[want[0]]++ // by this field alone
		}
	}
	if accepted < 1000 || len(refused) < 24 {
		t.Errorf("%d are accepted, refused for one reason alone %v; that proves little", accepted,
			refused)
	}
}
