package gubernator

import (
	"maps"
	"strconv"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/proto/gubernator"
	"penstock/rpc/door"
)

// unstated answers a request that nothing is counted for: it is measured by itself against what is
// admitted at once.
func unstated(now time.Time, r *gubernator.RateLimitReq, most int64) *gubernator.RateLimitResp {
	out := &gubernator.RateLimitResp{Limit: r.Limit, Remaining: most, ResetTime: now.UnixMilli()}
	switch {
	case r.Hits > most:
		out.Status = gubernator.Status_OVER_LIMIT
		if has(r, gubernator.Behavior_DRAIN_OVER_LIMIT) {
			out.Remaining = 0
		}
	case r.Hits > 0:
		out.Remaining -= r.Hits
	}
	return out
}

// refused is the response to a request in error. A client that looks at the status alone must not
// hear yes, except where their clients rely on it.
func refused(r *gubernator.RateLimitReq, err error) *gubernator.RateLimitResp {
	out := &gubernator.RateLimitResp{
		Status: gubernator.Status_OVER_LIMIT, Limit: r.GetLimit(), Error: err.Error(),
	}
	if e, ok := err.(*requestError); ok && e.missing {
		out.Status = gubernator.Status_UNDER_LIMIT
	}
	return out
}

// encode writes into out the response to a request that was decided. It does not change
// owner.
func encode(
	out *gubernator.RateLimitResp, now time.Time, owner map[string]string,
	r *gubernator.RateLimitReq, item *cluster.Item, d *cluster.Decision,
) {
	*out = gubernator.RateLimitResp{Limit: d.Rule.Limit, Remaining: d.Remaining, Metadata: owner}
	if !d.Allowed && d.RetryAfter >= 0 || d.Degraded {
		out.Metadata = maps.Clone(owner)
	}
	if !d.Allowed {
		out.Status = gubernator.Status_OVER_LIMIT
		if d.RetryAfter >= 0 {
			out.Metadata["retry_after_ms"] = strconv.FormatInt(door.Millis(d.RetryAfter), 10)
		}
	}
	if d.Degraded {
		out.Metadata["degraded"] = strconv.FormatInt(d.Bound, 10)
		if d.Bound == cluster.Unbounded {
			out.Metadata["degraded"] = "unbounded"
		}
		if item.Op == cluster.OpReset && !d.Allowed {
			out.Error = "the node that counts this key cannot be reached; nothing was reset"
		}
	}
	out.ResetTime = resetTime(now, r, item, d)
	if item.Inline != nil && r.Limit == 0 { // it was only reset
		out.Limit, out.Remaining = 0, 0
	}
}

// resetTime is when all that was hit counts no more, in milliseconds since the epoch.
func resetTime(
	now time.Time, r *gubernator.RateLimitReq, item *cluster.Item, d *cluster.Decision,
) int64 {
	if item.Inline == nil || d.Rule.Algorithm != limiter.StatedWindow {
		return upMillis(now.Add(d.ResetAfter))
	}
	calendar, end := d.Rule.Calendar != 0, now.Add(d.ResetAfter)
	switch {
	case d.ResetAfter == 0 && calendar: // of the window that the next hit opens
		_, end = gregorian(now, r.Duration)
	case d.ResetAfter == 0:
		end = now.Add(d.Rule.Per)
	}
	if calendar {
		return upMillis(end) - 1 // the last millisecond of its last second
	}
	return upMillis(end)
}

// ownerAddress is where clients reach the node id, or its id if that is not known.
func ownerAddress(view *cluster.View, id string) string {
	if i := view.Find(id); i >= 0 && view.Members[i].GRPCAddr != "" {
		return view.Members[i].GRPCAddr
	}
	return id
}

// upMillis is t in milliseconds since the epoch, rounded up.
func upMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// gregorianYears is the last kind of calendar interval; gubernator.proto lists them.
const gregorianYears = 5

// gregorian is the calendar interval of a kind that t lies in, [begin, end), in UTC.
func gregorian(t time.Time, kind int64) (begin, end time.Time) {
	t = t.UTC()
	y, m, d := t.Date()
	date := func(
		y int, m time.Month, d int,
	) time.Time {
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	}
	switch kind {
	case 0:
		begin = t.Truncate(time.Minute)
		return begin, begin.Add(time.Minute)
	case 1:
		begin = t.Truncate(time.Hour)
		return begin, begin.Add(time.Hour)
	case 2:
		return date(y, m, d), date(y, m, d+1)
	case 3:
		monday := d - (int(t.Weekday())+6)%7
		return date(y, m, monday), date(y, m, monday+7)
	case 4:
		return date(y, m, 1), date(y, m+1, 1)
	}
	return date(y, 1, 1), date(y+1, 1, 1)
}
