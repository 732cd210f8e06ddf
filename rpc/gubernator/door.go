package gubernator

import (
	"context"
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
	Audit    *audit.Log          // of resets and refunds; nil: nothing is recorded
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
			out.LocalPeers = append(out.LocalPeers,
				&gubernator.PeerHealthResp{GrpcAddress: m.GRPCAddr, HttpAddress: m.HTTPAddr})
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
		return status.Errorf(codes.OutOfRange,
			"Requests.RateLimits list too large; max size is '%d'", cluster.MaxItems)
	}
	c.begin(len(in))
	named := g.Node.Limits()
	last, changes := lastStated{from: c.from}, false
	for i, r := range in {
		item, done := g.translate(now, named, r, &last)
		changes = changes || item.Cost < 0 || item.Op == cluster.OpReset
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
	var err error
	if changes {
		err = c.from.Recorder(g.Audit).Check(g.Node, &c.request, c.decisions)
	} else {
		err = g.Node.Check(&c.request, c.decisions)
	}
	if err != nil {
		return door.StatusError(err)
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
	charges := !has(r, gubernator.Behavior_RESET_REMAINING)
	if charges {
		l, err = g.Inlines.Bring(stated(now, r), last.from)
	} else {
		l, err = g.Inlines.Get(stated(now, r), last.from)
	}
	if door.IsAccess(err) {
		last.denied = err
	}
	if err == nil && charges {
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
		if err = checkTree(named, &item); err != nil {
			g.Node.Stats().Refused.Add(1)
			return item, refused(r, err)
		}
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
