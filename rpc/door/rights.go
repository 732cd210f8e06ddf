package door

import (
	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
)

// ClientsOf are the clients of a door: those given, or one with a token, or nil for anybody.
func ClientsOf(given *access.Clients, token string) *access.Clients {
	if given == nil && token != "" {
		return access.New(access.Alone(token))
	}
	return given
}

// Permit is nil if the client of t may ask all of r. Every door asks it before Node.Check, so a
// request that is refused charges nothing.
func Permit(t *access.Ticket, r *cluster.Request) error {
	if t == nil {
		return nil
	}
	c, err := t.Client()
	if err != nil {
		return err
	}
	for i := range r.Items {
		if err := c.MayAsk(AskOf(&r.Items[i])); err != nil {
			return err
		}
	}
	return nil
}

func AskOf(it *cluster.Item) access.Ask {
	a := access.Ask{Act: access.Take, Limit: it.Limit, Inline: it.Inline != nil, Key: it.Key}
	if it.Inline != nil {
		if domain, found := limiter.EnvoyDomain(it.Inline.Name); found {
			a.Domain = domain
		}
	}
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
