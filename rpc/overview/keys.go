package rpc

import (
	"context"
	"time"
)

// ownedKey is a key with the node that decides for it.
type ownedKey struct {
	keyState
	Owner string `json:"owner"`
}

// ownedKeys are what all nodes have answered to a question for keys; of picks it from a reply.
type ownedKeys struct {
	Keys    []ownedKey `json:"keys"`
	Partial bool       `json:"partial"` // there are more, or a node did not come to its end
	Missing []string   `json:"missing"` // nodes that have not answered
}

// ownedKeys asks all nodes for keys. seen is how many keys they have looked at.
func (o *Overview) ownedKeys(
	ctx context.Context, q *question, of func(*reply) *foundKeys,
) (out ownedKeys, seen int64) {
	out.Keys = []ownedKey{}
	out.Missing = o.askAll(ctx, everyone(q), func(a *reply, _ time.Duration) {
		list := of(a)
		if list == nil {
			out.Partial = true
			return
		}
		for _, k := range list.Keys {
			out.Keys = append(out.Keys, ownedKey{k, a.Node})
		}
		seen, out.Partial = seen+list.Seen, out.Partial || list.Partial
	})
	return out, seen
}
