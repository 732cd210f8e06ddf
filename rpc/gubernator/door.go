package gubernator

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/proto/gubernator"
	"penstock/rpc/audit"
	"penstock/rpc/clock"
	"penstock/rpc/door"
)

// Door is pb.gubernator.V1, over gRPC and as JSON. Follow one request:
//
//  1. What needs no state is answered at once: a request in error, a limit of 0, a duration of 0.
//  2. The others become items. Their limit comes along, as a stated window or bucket; or if the
//     cluster has one of that name, that decides.
//  3. Node.Check decides them, and each decision goes to the place of its request.
type Door struct {
	gubernator.UnimplementedV1Server
	Node     *cluster.Node
	Clock    *clock.Clock // nil behind HTTP, where requests have no deadlines
	Inlines  *door.Inlines
	Draining func() bool         // nil: never
	Audit    *audit.Log          // of resets; nil: nothing is recorded
	Seconds  prometheus.Observer // of checks; nil: they are not measured
	owners   atomic.Pointer[ownerTexts]
}

// GetRateLimits decides requests.
func (g *Door) GetRateLimits(
	ctx context.Context, in *gubernator.GetRateLimitsReq,
) (*gubernator.GetRateLimitsResp, error) {
	c := &call{in: in}
	return &c.out, g.serve(ctx, c)
}

// Decide decides requests that did not come over gRPC. An error is a gRPC status.
func (g *Door) Decide(
	in *gubernator.GetRateLimitsReq, from door.Caller,
) (*gubernator.GetRateLimitsResp, error) {
	c := &call{in: in, from: from}
	err := g.answer(time.Now(), c)
	return &c.out, err
}

func (g *Door) serve(ctx context.Context, c *call) error {
	c.from = door.Caller{Context: ctx}
	if t, ok := ctx.Deadline(); ok {
		c.request.Deadline = g.Clock.At(t)
	}
	return g.answer(time.Now(), c)
}

// HealthCheck tells whether the node can answer. As everywhere here, that does not depend on other
// nodes.
func (g *Door) HealthCheck(
	context.Context, *gubernator.HealthCheckReq,
) (*gubernator.HealthCheckResp, error) {
	out := &gubernator.HealthCheckResp{Status: "healthy"}
	switch {
	case g.Draining != nil && g.Draining():
		out.Status, out.Message = "unhealthy", "this node is leaving its cluster"
	case !g.Node.Ready():
		out.Status, out.Message = "unhealthy", "this node has not joined its cluster yet"
	}
	if v := g.Node.View(); v != nil {
		out.PeerCount = int32(len(v.Members))
		out.AdvertiseAddress = v.Me().GRPCAddr
		for _, m := range v.Members {
			out.LocalPeers = append(
				out.LocalPeers,
				&gubernator.PeerHealthResp{GrpcAddress: m.GRPCAddr, HttpAddress: m.HTTPAddr},
			)
		}
	}
	return out, nil
}

// LiveCheck answers.
func (*Door) LiveCheck(
	context.Context, *gubernator.LiveCheckReq,
) (*gubernator.LiveCheckResp, error) {
	return &gubernator.LiveCheckResp{}, nil
}

// answer decides the requests of c, which came at now. An error is a gRPC status, and with each
// nothing was counted.
func (g *Door) answer(now time.Time, c *call) error {
	defer door.Took(g.Seconds, now)
	in := c.in.Requests
	if len(in) > cluster.MaxItems {
		g.Node.Stats().Refused.Add(1)
		return status.Errorf(
			codes.OutOfRange, "Requests.RateLimits list too large; max size is '%d'",
			cluster.MaxItems,
		)
	}
	c.begin(len(in))
	named := g.Node.Limits()
	last, resets := lastStated{from: c.from}, false
	for i, r := range in {
		item, done := g.translate(now, named, r, &last)
		resets = resets || item.Op == cluster.OpReset
		if c.out.Responses[i] = done; done == nil {
			c.request.Items, c.places = append(c.request.Items, item), append(c.places, i)
		}
	}
	if last.denied != nil {
		return door.StatusError(last.denied)
	}
	if len(c.places) == 0 {
		return nil
	}
	c.decisions = c.decisions[:len(c.places)]
	if err := door.Permit(c.from.Ticket(), &c.request); err != nil {
		return door.StatusError(err)
	}
	if err := g.Node.Check(&c.request, c.decisions); err != nil {
		return door.StatusError(err)
	}
	if resets {
		c.from.Recorder(g.Audit).Resets(c.request.Items, nil, c.decisions)
	}
	owners := g.ownersOf(g.Node.View())
	for k, i := range c.places {
		to, d := &c.answered[k], &c.decisions[k]
		encode(to, now, owners.text(d.Owner), in[i], &c.request.Items[k], d)
		c.out.Responses[i] = to
	}
	return nil
}

// lastStated is the limit that the last request of a message has stated. Most messages state one
// limit for all.
type lastStated struct {
	by    *gubernator.RateLimitReq
	limit *limiter.Limit
	from  door.Caller // of the message
	// denied is why the client may not bring a limit along; nil: it may
	denied error
}

// limit is what r states.
func (g *Door) limit(
	now time.Time, r *gubernator.RateLimitReq, last *lastStated,
) (l *limiter.Limit, err error) {
	if o := last.by; o != nil && o.Name == r.Name && o.Limit == r.Limit &&
		o.Duration == r.Duration && o.Burst == r.Burst &&
		o.Algorithm == r.Algorithm && has(
		o, gubernator.Behavior_DURATION_IS_GREGORIAN,
	) == has(r, gubernator.Behavior_DURATION_IS_GREGORIAN) {
		return last.limit, nil
	}
	l, err = g.Inlines.Bring(stated(now, r), last.from)
	if door.IsAccess(err) {
		last.denied = err
	}
	if err == nil {
		last.by, last.limit = r, l
	}
	return l, err
}

// ownerTexts are the metadata of responses that say nothing but the owner of the key, by the
// owner's id: of one owner the same, so nobody may change them.
type ownerTexts struct {
	view  *cluster.View
	texts map[string]map[string]string
}

// ownersOf are the texts for the members of view, made once.
func (g *Door) ownersOf(view *cluster.View) *ownerTexts {
	o := g.owners.Load()
	if o == nil || o.view != view {
		o = &ownerTexts{view, make(map[string]map[string]string, len(view.Members))}
		for i := range view.Members {
			id := view.Members[i].ID
			o.texts[id] = map[string]string{"owner": ownerAddress(view, id)}
		}
		g.owners.Store(o)
	}
	return o
}

func (o *ownerTexts) text(id string) map[string]string {
	if t := o.texts[id]; t != nil {
		return t
	}
	return map[string]string{"owner": ownerAddress(o.view, id)}
}

// translate makes an item of r, or the response if that needs no state.
func (g *Door) translate(
	now time.Time, named cluster.Limits, r *gubernator.RateLimitReq, last *lastStated,
) (item cluster.Item, done *gubernator.RateLimitResp) {
	item = cluster.Item{Key: r.GetUniqueKey(), Cost: r.GetHits()}
	if has(r, gubernator.Behavior_RESET_REMAINING) {
		item.Op, item.Cost = cluster.OpReset, 0
	}
	item.Drain = has(r, gubernator.Behavior_DRAIN_OVER_LIMIT) && item.Op == cluster.OpTake
	err := check(r)
	switch {
	case err == nil && named[r.Name] != nil:
		item.Limit = r.Name
		// which counts what it refuses as it is
		item.Drain = item.Drain && !named[r.Name].CountRejected
		return item, nil
	case err == nil:
		err = checkStated(r)
	}
	if err == nil {
		item.Inline, err = g.limit(now, r, last)
	}
	switch {
	case err != nil:
		g.Node.Stats().Refused.Add(1)
		return item, refused(r, err)
	case item.Op == cluster.OpReset: // also of a limit that counts nothing now
	case r.Limit == 0:
		return item, unstated(now, r, 0)
	case r.Duration == 0 && !has(r, gubernator.Behavior_DURATION_IS_GREGORIAN):
		return item, unstated(now, r, item.Inline.Capacity())
	}
	return item, nil
}

func has(
	r *gubernator.RateLimitReq, flag gubernator.Behavior,
) bool {
	return r.GetBehavior()&flag != 0
}

// allBehaviors are the flags that there are.
const allBehaviors = gubernator.Behavior_NO_BATCHING | gubernator.Behavior_GLOBAL | gubernator.Behavior_DURATION_IS_GREGORIAN |
	gubernator.Behavior_RESET_REMAINING | gubernator.Behavior_MULTI_REGION | gubernator.Behavior_DRAIN_OVER_LIMIT

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
			text: fmt.Sprintf(
				"field 'unique_key' has %d bytes; at most %d are accepted", len(r.UniqueKey),
				cluster.MaxKey,
			),
		}
	case r.Behavior&^allBehaviors != 0:
		return &requestError{
			text: fmt.Sprintf(
				"field 'behavior' is %d; the flags that are known add up to %d", r.Behavior,
				allBehaviors,
			),
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
				r.Algorithm,
			),
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
