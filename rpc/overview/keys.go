package overview

import (
	"context"
	"time"

	"penstock/rpc/admin"
)

// OwnedKey is a key with the node that decides for it.
type OwnedKey struct {
	admin.KeyState
	Owner string `json:"owner"`
}

// OwnedKeys are what all nodes have answered to a question for keys; of picks it from a reply.
type OwnedKeys struct {
	Keys    []OwnedKey `json:"keys"`
	Partial bool       `json:"partial"` // there are more, or a node did not come to its end
	Missing []string   `json:"missing"` // nodes that have not answered
}

// OwnedKeys asks all nodes for keys. seen is how many keys they have looked at.
func (o *Overview) OwnedKeys(
	ctx context.Context, q *Question, of func(*Reply) *admin.FoundKeys,
) (out OwnedKeys, seen int64) {
	out.Keys = []OwnedKey{}
	out.Missing = o.AskAll(ctx, Everyone(q), func(a *Reply, _ time.Duration) {
		list := of(a)
		if list == nil {
			out.Partial = true
			return
		}
		for _, k := range list.Keys {
			out.Keys = append(out.Keys, OwnedKey{k, a.Node})
		}
		seen, out.Partial = seen+list.Seen, out.Partial || list.Partial
	})
	return out, seen
}
