package envoy

import (
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func abandon() *quotav3.RateLimitQuotaResponse_BucketAction {
	return &quotav3.RateLimitQuotaResponse_BucketAction{
		BucketAction: &quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction_{
			AbandonAction: new(quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction),
		},
	}
}

func assign(lasts time.Duration,
	s *typev3.RateLimitStrategy,
) *quotav3.RateLimitQuotaResponse_BucketAction {
	action := quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
		AssignmentTimeToLive: durationpb.New(lasts), RateLimitStrategy: s,
	}
	return &quotav3.RateLimitQuotaResponse_BucketAction{
		BucketAction: &quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
			QuotaAssignmentAction: &action,
		},
	}
}

func blanket(rule typev3.RateLimitStrategy_BlanketRule) *typev3.RateLimitStrategy {
	return &typev3.RateLimitStrategy{
		Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: rule},
	}
}

// tokens is a bucket that is full once: its refill comes long after the lease is over. An Envoy
// keeps the bucket that it has if it is assigned the same again, spent as it is; so no two
// assignments are the same, by some seconds.
func tokens(units int64, number uint64) *typev3.RateLimitStrategy {
	full := &typev3.TokenBucket{
		MaxTokens: uint32(min(units, 1<<32-1)), TokensPerFill: wrapperspb.UInt32(1),
		FillInterval: durationpb.New(24*time.Hour + time.Duration(number%3600)*time.Second),
	}
	return &typev3.RateLimitStrategy{
		Strategy: &typev3.RateLimitStrategy_TokenBucket{TokenBucket: full},
	}
}
