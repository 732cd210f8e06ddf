package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
	"penstock/rpc/admin"
	"penstock/rpc/history"
	"penstock/rpc/overview"
)

// key is GET /v1/cluster/key?limit=&key=: where a key lives, how it is, and the latest
// answers about it at the doors of all nodes. From then on all answers about it are remembered for
// ten minutes.
func (p *clusterPages) key(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := readQuery(r, "limit", "key")
	if err != nil {
		return nil, err
	}
	item := cluster.Item{Limit: q["limit"], Key: q["key"], Cost: 1, Op: cluster.OpPeek}
	peek, out := cluster.Request{Items: []cluster.Item{item}}, make([]cluster.Decision, 1)
	if err := p.node.Check(&peek, out); err != nil {
		return nil, ofQuery(err)
	}
	v := p.node.View()
	if v == nil {
		return nil, cluster.ErrNoView
	}
	list, share := []history.Answer{}, int64(1)
	missing := p.overview.AskAll(r.Context(), overview.Everyone(&overview.Question{
		Answers: &overview.KeysQuestion{Limit: q["limit"], Key: q["key"], Count: answersOfKey},
	}), func(a *overview.Reply, _ timeSkew) {
		if a.Answers != nil {
			list = append(list, a.Answers.Answers...)
			share = max(share, a.Answers.Share)
		}
	})
	slices.SortFunc(list, func(a, b history.Answer) int { return cmp.Compare(b.AtMs, a.AtMs) })
	at := admin.Locate(v, q["key"])
	return map[string]any{
		"limit": q["limit"], "key": q["key"], "decision": newDecisionJSON(&out[0]),
		"partition": at.Partition, "owner": at.Owner, "heir": at.Heir,
		"may_reset": mayReset(r.Context(), q["limit"], q["key"]),
		"answers":   list[:min(answersOfKey, len(list))], "share": share, "missing": missing,
		"hash": fmt.Sprintf("%016x", limiter.Hash(q["key"])),
	}, nil
}

// answersOfKey is how many answers about a key are shown.
const answersOfKey = 50

// mayReset reports whether the client of a request may reset a key.
func mayReset(ctx context.Context, limit, key string) bool {
	c, err := access.Of(ctx).Client()
	return err == nil && c.MayAsk(access.Ask{Act: access.Reset, Limit: limit, Key: key}) == nil
}
