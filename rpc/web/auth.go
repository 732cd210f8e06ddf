package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"penstock/cluster"
	"penstock/rpc/door"
	"penstock/rpc/page"
)

// auth is /v1/auth, for proxies that ask before they pass a request on: nginx auth_request, Traefik
// ForwardAuth, Caddy forward_auth. The query names the limit, a template of the key, a cost, and
// what a denial looks like, since most proxies hand it on to their client: its status (nginx
// understands no other than 403) and its body, a plain text. The body of the question is not read,
// nor waited for: some proxies pass on how long it is and not the body.
//
//	/v1/auth?limit=per-user&key={header:X-User}&deny_status=503&deny_body=Come+back+later
//
// Without a limit, the rules of the cluster's files say what the request falls under, by these
// attributes: method, path, host, ip, and header:NAME of the headers that rules ask for.
func (c *checks) auth(rw http.ResponseWriter, r *http.Request) {
	item, style, err := c.authItem(r)
	switch {
	case err != nil:
		page.Error(rw, err)
	case item.Limit != "":
		c.answer(rw, r, item, style)
	default:
		c.authRuled(rw, r, &item, style)
	}
}

func (c *checks) authItem(r *http.Request) (item cluster.Item, style answerStyle, err error) {
	q, err := readQuery(r, "limit", "key", "cost", "plan", "max_delay_ms", "headers",
		"deny_status", "deny_body")
	if err != nil {
		return item, style, err
	}
	if item, style, err = readItem(q, cluster.OpTake); err != nil {
		return item, style, err
	}
	style.handedOn = true
	if status, given := q["deny_status"]; given {
		style.chosen = true
		if style.denied, err = strconv.Atoi(status); err != nil || style.denied < 400 ||
			style.denied > 599 {
			return item, style, queryFault("deny_status", "must be a number from 400 to 599")
		}
	}
	style.text = q["deny_body"]
	if err = limitGiven(q, &item); err != nil || item.Limit == "" {
		return item, style, err
	}
	if item.Key, err = c.proxies.fill(item.Key, r); err == nil && item.Plan != "" {
		item.Plan, err = c.proxies.fill(item.Plan, r)
	}
	if err != nil {
		return item, style, refusal(authStatus(err), "key", "%v", err)
	}
	return item, style, nil
}

// limitGiven is an error if an item without a limit has what only a limit makes sense of.
func limitGiven(q map[string]string, item *cluster.Item) error {
	_, limited := q["limit"]
	_, keyed := q["key"]
	switch {
	case item.Limit != "":
	case limited:
		// not the rules: of a proxy with an empty variable, they might say that all may pass
		return queryFault("limit", "is empty; name a limit, or leave it and the key out to have "+
			"the rules say what the request falls under")
	case keyed:
		return queryFault("key", "is given without a limit; give both, or neither to have the "+
			"rules say what the request falls under")
	case item.Plan != "":
		return queryFault("plan", "is given without a limit; where the rules say what the request "+
			"falls under, they say the plan too")
	}
	return nil
}

// authStatus is the status of a question that cannot be answered. A header that is given twice, or
// beside the proxy's own, is the client's doing, so the client is refused, in a way that all
// proxies pass on; everything else is the question's fault, of which nginx makes a 500.
func authStatus(err error) int {
	twice, beside := new(repeatedHeaderError), new(contradictedProxyError)
	if errors.As(err, &twice) || errors.As(err, &beside) {
		return http.StatusForbidden
	}
	return http.StatusBadRequest
}

// authRuled answers by the rules; item is what a request costs, and on which terms.
func (c *checks) authRuled(rw http.ResponseWriter, r *http.Request, item *cluster.Item,
	style answerStyle,
) {
	attributes, err := c.proxies.attributes(r, c.node.Rules().Attributes())
	if err != nil {
		page.Error(rw, refusal(authStatus(err), "attributes", "%v", err))
		return
	}
	m, out, err := door.CheckRuled(c.decider(r), recorderOf(c.audit, r), attributes, item, 0)
	if err != nil {
		page.Fault(rw, door.Explain(door.RulesError(err)))
		return
	}
	body := newRuledJSON(&m, out)
	setRateLimits(rw.Header(), out, style.headers)
	style = style.as(cluster.SaidTogether(out))
	switch {
	case body.Allowed:
		page.JSON(rw, http.StatusOK, body)
	case style.text != "":
		writeText(rw, style)
	default:
		page.ProblemJSON(rw, style.denied,
			exceededTogether{
				exceededProblem(style.denied, ruledDenial(body.Verdict)),
				body.Verdict.RefusedBy, body,
			})
	}
}

func ruledDenial(v *verdictJSON) string {
	limits := strings.Join(v.RefusedBy, ", ")
	if v.RetryAfterMs < 0 {
		return fmt.Sprintf("refused by %s, which never admits that much at once", limits)
	}
	return fmt.Sprintf("refused by %s; all admit this again in %d ms", limits, v.RetryAfterMs)
}
