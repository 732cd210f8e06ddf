package web

import (
	"net/http"

	"penstock/limiter"
	"penstock/rpc/admin"
	"penstock/rpc/door"
	"penstock/rpc/page"
)

// holds is GET /v1/holds?limit=&key=&holder=&count=: what is set aside on keys of this node.
func (w *web) holds(rw http.ResponseWriter, r *http.Request) {
	q, f := readQuery(r, "limit", "key", "holder", "count")
	count, f := queryCount(q, admin.HoldsDefault, f)
	if f != nil {
		page.Fault(rw, *f)
		return
	}
	list, err := admin.ListHolds(w.Node,
		limiter.HoldFilter{Limit: q["limit"], Key: q["key"], Holder: q["holder"]}, count)
	if err != nil {
		page.Fault(rw, door.Explain(err))
		return
	}
	page.JSON(rw, http.StatusOK, list)
}
