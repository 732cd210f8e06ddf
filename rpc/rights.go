package rpc

import (
	"net/http"
	"strings"

	"penstock/cluster"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
)

// clientsOf are the clients of a door: those given, or one with a token, or nil for anybody.
func clientsOf(given *access.Clients, token string) *access.Clients {
	if given == nil && token != "" {
		return access.New(access.Alone(token))
	}
	return given
}

// permit is nil if the client of t may ask all of r. Every door asks it before Node.Check, so a
// request that is refused charges nothing.
func permit(t *access.Ticket, r *cluster.Request) error {
	if t == nil {
		return nil
	}
	c, err := t.Client()
	if err != nil {
		return err
	}
	for i := range r.Items {
		if err := c.MayAsk(askOf(&r.Items[i])); err != nil {
			return err
		}
	}
	return nil
}

func askOf(it *cluster.Item) access.Ask {
	a := access.Ask{Limit: it.Limit, Inline: it.Inline != nil, Key: it.Key}
	switch {
	case it.Op == cluster.OpPeek:
		a.Act = access.Peek
	case it.Op == cluster.OpReset:
		a.Act = access.Reset
	case it.Op == cluster.OpSettle || it.Op == cluster.OpExtend:
		a.Act = access.Settle
	case it.Cost < 0:
		a.Act = access.GiveBack
	}
	return a
}

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
	"/v1/audit": access.Read,

	"/v1/recover": access.Write, "/v1/limits/promote": access.Write,

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

// methodRights are the rights that methods of penstock.v1.Admin need. One that is not listed needs
// the right to write.
var methodRights = map[string]access.Right{
	penstockv1.Admin_Members_FullMethodName: access.Read,
	penstockv1.Admin_Ring_FullMethodName:    access.Read,
	penstockv1.Admin_Keys_FullMethodName:    access.Read,
	penstockv1.Admin_Top_FullMethodName:     access.Read,
	penstockv1.Admin_Holds_FullMethodName:   access.Read,
	penstockv1.Admin_Limits_FullMethodName:  access.Read,
}

// mayCall is nil if the client of t may call a method.
func mayCall(t *access.Ticket, method string) error {
	if !strings.HasPrefix(method, "/"+penstockv1.Admin_ServiceDesc.ServiceName+"/") {
		_, err := t.Client()
		return err
	}
	if right, listed := methodRights[method]; listed {
		return t.May(right)
	}
	return t.May(access.Write)
}
