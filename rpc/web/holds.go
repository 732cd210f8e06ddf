package web

import (
	"net/http"

	"penstock/limiter"
	"penstock/rpc/admin"
)

// holds is GET /v1/holds?limit=&key=&holder=&count=: what is set aside on keys of this node.
func (w *web) holds(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, count, err := countedQuery(r, admin.HoldsDefault, "limit", "key", "holder", "count")
	if err != nil {
		return nil, err
	}
	list, err := admin.ListHolds(w.Node,
		limiter.HoldFilter{Limit: q["limit"], Key: q["key"], Holder: q["holder"]}, count)
	if err != nil {
		return nil, err
	}
	return list, nil
}
