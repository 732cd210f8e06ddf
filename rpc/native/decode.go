package native

import (
	"fmt"

	"penstock/cluster"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
	"penstock/rpc/notation"
	"penstock/rpc/wire"
)

// decode makes a request of the items in; their keys stay where they are.
func (c *checkCall) decode(in []*penstockv1.Item, op cluster.Op, inlines *door.Inlines) error {
	if len(in) > cluster.MaxItems { // Node.Check refuses them, and need not see them for that
		return door.Wrong("items", "has %d items; 1 to %d are accepted", len(in), cluster.MaxItems)
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
		var err error
		var drawn bool
		if to.ID, drawn = idOf(it.Id); !drawn {
			return door.Wrong(fmt.Sprintf("items[%d].id.origin", i), badOrigin, to.ID.Origin)
		}
		if to.Terms, err = door.ReadTerms(i, door.Terms{
			Report: it.Report, Drain: it.Drain, Strict: it.Strict,
			AtMs: it.AtMs, MaxDelayMs: it.MaxDelayMs,
		}); err != nil {
			return err
		}
		if it.Inline != nil {
			if it.Limit != "" {
				return door.Wrong(fmt.Sprintf("items[%d].limit", i),
					"is given together with inline; give one of the two")
			}
			if op == cluster.OpTake {
				to.Inline, err = inlines.Bring(notation.ReadLimit(it.Inline), c.from)
			} else {
				to.Inline, err = inlines.Get(notation.ReadLimit(it.Inline), c.from)
			}
			if err != nil {
				return door.InlineError(i, err)
			}
		}
	}
	return nil
}

// badOrigin refuses an id that another client may have as well: the second charge under it would be
// taken for a repeat of the first, and not be counted.
const badOrigin = "is %d; draw it at random, once in each process of a client"

// idOf is the id of a take, and whether a client has drawn it: the highest bit is not its own.
func idOf(in *penstockv1.RequestId) (id cluster.ID, drawn bool) {
	id = cluster.ID{Origin: in.GetOrigin(), Sequence: in.GetSequence()}
	return id, id == cluster.ID{} || id.Origin<<1 != 0
}
