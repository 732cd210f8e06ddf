package embedded

import (
	"context"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/client"
	"penstock/rpc/hold"
)

// Reserve reserves estimate units of key until the reservation is settled or ttl is over: at least
// 100 ms and at most a day. client.Acquire makes permits of such reservations.
func (n *Node) Reserve(
	ctx context.Context, limit, key string, estimate int64, ttl time.Duration,
) (*client.Reservation, error) {
	item := cluster.Item{
		Limit: limit, Key: key, Cost: estimate, Op: cluster.OpReserve,
		Hold: &cluster.HoldTerms{TTL: ttl},
	}
	d, err := n.check(ctx, &item)
	if err == nil {
		err = hold.StatusError(item.Op, &d)
	}
	switch {
	case err != nil:
		return nil, err
	case d.Hold != limiter.HoldOpen:
		return client.NewReservation(answer(&d), nil), nil
	}
	return client.NewReservation(answer(&d), reservation{n, limit, key, item.ID}), nil
}

// reservation is one made through this node; any node may keep it.
type reservation struct {
	node       *Node
	limit, key string
	id         cluster.ID
}

func (h reservation) Settle(ctx context.Context, actual int64) error {
	return h.act(ctx, cluster.Item{
		Op: cluster.OpSettle, Cost: actual,
		Hold: &cluster.HoldTerms{ID: h.id},
	})
}

func (h reservation) Extend(ctx context.Context, ttl time.Duration) error {
	return h.act(ctx, cluster.Item{
		Op:   cluster.OpExtend,
		Hold: &cluster.HoldTerms{ID: h.id, TTL: ttl},
	})
}

func (h reservation) act(ctx context.Context, item cluster.Item) error {
	item.Limit, item.Key = h.limit, h.key
	d, err := h.node.check(ctx, &item)
	if err != nil {
		return err
	}
	return hold.StatusError(item.Op, &d)
}
