package web

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"penstock/rpc/admin"
	"penstock/rpc/door"
	"penstock/rpc/page"
)

// top is GET /v1/top?count=&limit=: the keys of this node that have used most.
func (w *web) top(rw http.ResponseWriter, r *http.Request) {
	q, f := readQuery(r, "count", "limit")
	n, f := queryCount(q, admin.TopDefault, f)
	if f != nil {
		page.Fault(rw, *f)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout/2)
	defer cancel()
	page.JSON(rw, http.StatusOK, admin.Top(ctx, w.Node, n, q["limit"]))
}

// queryCount is the count of a query, unless it has a fault already.
func queryCount(q map[string]string, usual int, f *door.Fault) (int, *door.Fault) {
	text, given := q["count"]
	if f != nil || !given {
		return usual, f
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 || n > admin.MaxListed {
		return 0, &door.Fault{
			Status: http.StatusBadRequest, Field: "count",
			Text: fmt.Sprintf("count: %.40q is not a number from 1 to %d", text, admin.MaxListed),
		}
	}
	return int(n), nil
}
