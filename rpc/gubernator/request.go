package gubernator

import (
	"fmt"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/proto/gubernator"
	"penstock/rpc/door"
)

func has(
	r *gubernator.RateLimitReq, flag gubernator.Behavior,
) bool {
	return r.GetBehavior()&flag != 0
}

// allBehaviors are the flags that there are.
const allBehaviors = gubernator.Behavior_NO_BATCHING |
	gubernator.Behavior_GLOBAL |
	gubernator.Behavior_DURATION_IS_GREGORIAN |
	gubernator.Behavior_RESET_REMAINING |
	gubernator.Behavior_MULTI_REGION |
	gubernator.Behavior_DRAIN_OVER_LIMIT

// requestError is what is wrong with a request. Missing says that name or key is: Gubernator's
// clients expect its words and its status then.
type requestError struct {
	text    string
	missing bool
}

func (e *requestError) Error() string { return e.text }

// check says what is wrong with r whatever limit decides.
func check(r *gubernator.RateLimitReq) error {
	switch {
	case r.GetUniqueKey() == "":
		return &requestError{"field 'unique_key' cannot be empty", true}
	case r.Name == "":
		return &requestError{"field 'namespace' cannot be empty", true}
	case len(r.UniqueKey) > cluster.MaxKey:
		return &requestError{
			text: fmt.Sprintf("field 'unique_key' has %d bytes; at most %d are accepted",
				len(r.UniqueKey), cluster.MaxKey),
		}
	case r.Behavior&^allBehaviors != 0:
		return &requestError{
			text: fmt.Sprintf("field 'behavior' is %d; the flags that are known add up to %d",
				r.Behavior, allBehaviors),
		}
	}
	return nil
}

// checkTree says why the parents of an item's limit cannot be charged too. Else the node would
// refuse the whole message for it.
func checkTree(named cluster.Limits, item *cluster.Item) error {
	l := named[item.Limit]
	if l.Parent == "" || item.Op == cluster.OpReset {
		return nil
	}
	above, err := limiter.Ancestors(l, func(name string) *limiter.Limit { return named[name] })
	if err != nil {
		return err
	}
	if item.Drain {
		return &requestError{text: fmt.Sprintf("behavior DRAIN_OVER_LIMIT is not for limit "+
			"%.100q, which has a parent", l.Name)}
	}
	key := item.Key
	for _, at := range above {
		var has bool
		if key, has = limiter.ParentKey(key); !has {
			return &requestError{text: fmt.Sprintf("field 'unique_key' is too short: the key of "+
				"%.100q, which is charged too, is what stands before the last slash", at.Name)}
		}
	}
	return nil
}

// checkStated says what is wrong with the limit that r states.
func checkStated(r *gubernator.RateLimitReq) error {
	switch {
	case r.Limit < 0:
		return &requestError{
			text: fmt.Sprintf("field 'limit' is %d; 0 or more are accepted", r.Limit),
		}
	case r.Burst < 0:
		return &requestError{
			text: fmt.Sprintf("field 'burst' is %d; 0 or more are accepted", r.Burst),
		}
	case r.Algorithm != gubernator.Algorithm_TOKEN_BUCKET &&
		r.Algorithm != gubernator.Algorithm_LEAKY_BUCKET:
		return &requestError{
			text: fmt.Sprintf(
				"field 'algorithm' is %d; 0, TOKEN_BUCKET, and 1, LEAKY_BUCKET, are accepted",
				r.Algorithm),
		}
	case has(r, gubernator.Behavior_DURATION_IS_GREGORIAN) && (r.Duration < 0 ||
		r.Duration > gregorianYears):
		return &requestError{
			text: "behavior DURATION_IS_GREGORIAN is set; but `Duration` is not a valid " +
				"gregorian interval",
		}
	case r.Duration < 0:
		return &requestError{
			text: fmt.Sprintf("field 'duration' is %d; 0 or more are accepted", r.Duration),
		}
	}
	return nil
}

// stated is the limit that r states. What is more than any limit here can be becomes the most that
// there is, so that nothing overflows; 0 becomes the least, for a request that only resets.
func stated(now time.Time, r *gubernator.RateLimitReq) limiter.Spec {
	s := limiter.Spec{
		Name:      r.Name,
		Algorithm: limiter.StatedWindow,
		Limit:     min(max(r.Limit, 1), limiter.MaxLimit),
		Per:       min(max(door.FromMillis(r.Duration), limiter.MinPer), limiter.MaxPer),
	}
	calendar := has(r, gubernator.Behavior_DURATION_IS_GREGORIAN)
	switch {
	case r.Algorithm == gubernator.Algorithm_LEAKY_BUCKET:
		s.Algorithm, s.Burst = limiter.StatedBucket, min(r.Burst, limiter.MaxLimit)
		if calendar {
			begin, end := gregorian(now, r.Duration)
			s.Per = end.Sub(begin)
		}
	case calendar:
		s.Calendar, s.Per = limiter.Minutes+limiter.Calendar(r.Duration), 0
	}
	return s
}
