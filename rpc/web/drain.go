package web

import (
	"context"
	"net/http"
	"time"

	"penstock/rpc/admin"
)

// adminDone says that something has been done at one node.
type adminDone struct {
	Node string `json:"node"`
}

// recoverPage is POST /v1/recover.
func (w *web) recoverPage(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := admin.RecoverNode(w.recorder(r), w.Node); err != nil {
		return nil, err
	}
	return adminDone{Node: w.Node.ID()}, nil
}

// drainPage is POST /v1/drain.
func (w *web) drainPage(_ http.ResponseWriter, r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout-time.Second)
	defer cancel()
	if err := admin.DrainNode(ctx, w.recorder(r), w.Node, w.Drain); err != nil {
		return nil, err
	}
	return adminDone{Node: w.Node.ID()}, nil
}
