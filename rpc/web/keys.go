package web

import (
	"context"
	"net/http"

	"penstock/rpc/admin"
)

// top is GET /v1/top?count=&limit=: the keys of this node that have used most.
func (w *web) top(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, n, err := countedQuery(r, admin.TopDefault, "count", "limit")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout/2)
	defer cancel()
	return admin.Top(ctx, w.Node, n, q["limit"]), nil
}
