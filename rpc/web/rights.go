package web

import (
	"net/http"

	"penstock/rpc/access"
)

// byItem says that a page has no right of its own: permit decides about its items.
const byItem access.Right = 0

// pageRights are the rights that pages need. A page that is not listed needs the right to write, so
// that a new page is not open by mistake.
var pageRights = map[string]access.Right{
	"/v1/check": byItem, "/v1/peek": byItem, "/v1/reserve": byItem, "/v1/settle": byItem,
	"/v1/extend": byItem, "/v1/auth": byItem, "/v1/reset": byItem, "/json": byItem,
	"/v1/GetRateLimits": byItem, "/v1/HealthCheck": byItem, "/v1/LiveCheck": byItem,

	"/v1/members": access.Read, "/v1/ring": access.Read, "/v1/status": access.Read,
	"/v1/top": access.Read, "/v1/holds": access.Read, "GET /v1/limits": access.Read,
	"/v1/audit": access.Read, "/v1/limits/history": access.Read,

	"/v1/cluster/watch": access.Read, "/v1/cluster/limits": access.Read,
	"/v1/cluster/rules": access.Read, "/v1/cluster/ring": access.Read,
	"/v1/cluster/heavy": access.Read, "/v1/cluster/top": access.Read,
	"/v1/cluster/keys": access.Read, "/v1/cluster/holds": access.Read,
	"/v1/cluster/key": access.Read,

	"/v1/recover": access.Write, "/v1/limits/promote": access.Write,
	"/v1/limits/rollback": access.Write,

	"/metrics": access.Metrics,
}

// mayOpen is nil if the client of t may ask for a page.
func mayOpen(t *access.Ticket, r *http.Request) error {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	right, listed := pageRights[r.URL.Path]
	if !listed {
		right, listed = pageRights[method+" "+r.URL.Path]
	}
	switch {
	case !listed:
		right = access.Write
	case right == byItem:
		_, err := t.Client()
		return err
	}
	return t.May(right)
}
