package web

import (
	"errors"
	"fmt"
	"net/http"

	"penstock/cluster"
	"penstock/rpc/access"
	"penstock/rpc/door"
	"penstock/rpc/hold"
)

// reserveJSON asks for holds: on items, or with the fields of one item.
type reserveJSON struct {
	Items  []itemJSON `json:"items"`
	TTLMs  int64      `json:"ttl_ms"`
	Holder string     `json:"holder"`
	itemJSON
}

// holdJSON is a hold with the decision on it. Without an id nothing is set aside.
type holdJSON struct {
	ID string `json:"id"`
	DecisionJSON
}

// reservedJSON answers with a hold for each item. A body that was one item has its hold's fields
// here too.
type reservedJSON struct {
	Allowed bool `json:"allowed"`
	*holdJSON
	Holds []holdJSON `json:"holds"`
}

// settleJSON says what was used of a hold.
type settleJSON struct {
	ID     string `json:"id"`
	Actual *int64 `json:"actual"`
	Holder string `json:"holder"`
}

// extendJSON is a sign of life from the holder of a hold.
type extendJSON struct {
	ID     string `json:"id"`
	TTLMs  int64  `json:"ttl_ms"`
	Holder string `json:"holder"`
}

// reserveBody is POST /v1/reserve: all is set aside, or nothing. The status is 200 also if that was
// denied.
func (c *checks) reserveBody(rw http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readJSON[reserveJSON](rw, r,
		"a body has items, ttl_ms, holder or the fields of one item; an item has limit, inline, "+
			"key, cost")
	if err != nil {
		return nil, err
	}
	request, single, err := c.request(r, body.Items, body.itemJSON, cluster.OpTake)
	if err != nil {
		return nil, ofBody(err, single)
	}
	out := make([]cluster.Decision, len(request.Items))
	ids, allowed, err := hold.Reserve(c.decider(r), access.Of(r.Context()), request, out,
		&cluster.HoldTerms{
			TTL: door.FromMillis(body.TTLMs), Holder: body.Holder,
			Client: c.proxies.caller(r).Mark(c.node.ID()),
		})
	if err != nil {
		return nil, ofBody(err, single)
	}
	answer := reservedJSON{Allowed: allowed, Holds: make([]holdJSON, len(out))}
	for i := range out {
		answer.Holds[i] = holdJSON{ids[i], newDecisionJSON(&out[i])}
	}
	if single {
		answer.holdJSON = &answer.Holds[0]
	}
	return answer, nil
}

// settleBody is POST /v1/settle.
func (c *checks) settleBody(rw http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readJSON[settleJSON](rw, r, "a settlement has id, actual, holder")
	if err == nil && body.Actual == nil {
		err = door.Wrong("actual", "is missing; say how much was used, 0 cancels")
	}
	if err != nil {
		return nil, err
	}
	return c.atHold(r, body.ID, cluster.OpSettle, *body.Actual, 0, body.Holder)
}

// extendBody is POST /v1/extend.
func (c *checks) extendBody(rw http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readJSON[extendJSON](rw, r, "a sign of life has id, ttl_ms, holder")
	if err != nil {
		return nil, err
	}
	return c.atHold(r, body.ID, cluster.OpExtend, 0, body.TTLMs, body.Holder)
}

// atHold answers with the state of the hold's key.
func (c *checks) atHold(
	r *http.Request, id string, op cluster.Op, actual, ttlMs int64, holder string,
) (any, error) {
	d, err := hold.SettleOrExtend(c.node, recorderOf(c.audit, r), c.inlines, id, op, actual, ttlMs,
		holder, 0)
	if err != nil {
		return nil, ofQuery(err)
	}
	return newDecisionJSON(&d), nil
}

// ofBody is what was wrong with a body's request. single says that it was one item and no list.
func ofBody(err error, single bool) error {
	if single {
		return ofQuery(err)
	}
	return err
}

// bodyFault says what was wrong with a page's request.
func bodyFault(err error) door.Fault {
	f := door.Explain(err)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		f.Status, f.Field = http.StatusRequestEntityTooLarge, "body"
		f.Text = fmt.Sprintf("body: has more than %d bytes", large.Limit)
	}
	return f
}
