package web

import (
	"context"
	"net/http"
	"time"

	"penstock/rpc/admin"
	"penstock/rpc/door"
	"penstock/rpc/page"
)

// adminDone says that something has been done at one node.
type adminDone struct {
	Node string `json:"node"`
}

// recoverPage is POST /v1/recover.
func (w *web) recoverPage(rw http.ResponseWriter, r *http.Request) {
	if err := admin.RecoverNode(w.recorder(r), w.Node); err != nil {
		page.Fault(rw, door.Explain(err))
		return
	}
	page.JSON(rw, http.StatusOK, adminDone{Node: w.Node.ID()})
}

// drainPage is POST /v1/drain.
func (w *web) drainPage(rw http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout-time.Second)
	defer cancel()
	if err := admin.DrainNode(ctx, w.recorder(r), w.Node, w.Drain); err != nil {
		page.Fault(rw, door.Explain(err))
		return
	}
	page.JSON(rw, http.StatusOK, adminDone{Node: w.Node.ID()})
}
