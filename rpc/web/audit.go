package web

import (
	"net/http"

	"penstock/rpc/access"
	"penstock/rpc/audit"
	"penstock/rpc/door"
)

// recorder is that of the client of r.
func (w *web) recorder(r *http.Request) door.Recorder {
	return door.Recorder{Log: w.Audit, Who: access.Of(r.Context()), From: r.RemoteAddr}
}

// auditJSON is GET /v1/audit.
type auditJSON struct {
	Node    string        `json:"node"`
	Entries []audit.Entry `json:"entries"`
}

// auditDefault is the number of entries that /v1/audit shows unless it is told otherwise.
const auditDefault = 100

// audit is GET /v1/audit?count=: the last changes at this node, the latest first.
func (w *web) audit(_ http.ResponseWriter, r *http.Request) (any, error) {
	_, n, err := countedQuery(r, auditDefault, "count")
	if err != nil {
		return nil, err
	}
	return auditJSON{w.Node.ID(), w.Audit.Last(n)}, nil
}
