package web

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"penstock/cluster"
	"penstock/limiter/rules"
	"penstock/rpc/access"
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
func (w *web) auth(rw http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// else net/http would read the body before it answers
		rw.Header().Set("Connection", "close")
	}
	item, style, err := w.authItem(r)
	switch {
	case err != nil:
		page.Error(rw, err)
	case item.Limit != "":
		w.answer(rw, r, item, style)
	default:
		w.authRuled(rw, r, &item, style)
	}
}

func (w *web) authItem(r *http.Request) (item cluster.Item, style answerStyle, err error) {
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
	switch _, keyed := q["key"]; {
	case item.Limit == "" && keyed:
		err = errors.New("is given without a limit; give both, or neither to have the rules say " +
			"what the request falls under")
	case item.Limit == "" && item.Plan != "":
		return item, style, queryFault("plan", "is given without a limit; "+
			"where the rules say what the request falls under, they say the plan too")
	case item.Limit != "":
		if item.Key, err = w.fill(item.Key, r); err == nil && item.Plan != "" {
			item.Plan, err = w.fill(item.Plan, r)
		}
	}
	if err != nil {
		return item, style, refusal(authStatus(err), "key", "%v", err)
	}
	return item, style, nil
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
func (w *web) authRuled(rw http.ResponseWriter, r *http.Request, item *cluster.Item,
	style answerStyle,
) {
	attributes, err := w.attributes(r, w.Node.Rules().Attributes())
	if err != nil {
		page.Error(rw, refusal(authStatus(err), "attributes", "%v", err))
		return
	}
	m, out, err := door.CheckRuled(w.decider(r), access.Of(r.Context()), attributes, item, 0)
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

// attributes are those of the request that a proxy asks about, by the names that rules have for
// them. An attribute that the request lacks is left out.
func (w *web) attributes(r *http.Request, names []string) (map[string]string, error) {
	all := map[string]string{}
	for _, name := range names {
		if name != "method" && name != "path" && name != "host" && name != "ip" &&
			!strings.HasPrefix(name, "header:") {
			continue
		}
		v, err := w.placeholder(name, r)
		var none *noHeaderError
		if errors.As(err, &none) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[name] = v
	}
	return all, nil
}

const placeholders = "{header:NAME}, {header:NAME|DEFAULT}, {host}, {ip}, {method}, {path}"

// fill replaces the placeholders of a template by what they say of the request:
//
//	{header:NAME}  a header, which must be there, and once
//	{header:NAME|DEFAULT}  the same; DEFAULT if it is not there or empty
//	{host}         X-Forwarded-Host, X-Original-Host, or Host, in lower case, without a port
//	{ip}           the client's address; an IPv6 address as its /64, which one client has whole
//	{method}       X-Forwarded-Method, X-Original-Method, or the method itself
//	{path}         of X-Forwarded-Uri or X-Original-URI, decoded and cleaned, without its query;
//	               else the path itself
//
// How values are kept apart says rules.Template.
func (w *web) fill(template string, r *http.Request) (string, error) {
	t, err := rules.ParseTemplate(template)
	if err != nil {
		return "", fmt.Errorf("%w; a template has text and %s", err, placeholders)
	}
	return t.Fill(func(name string) (string, error) { return w.placeholder(name, r) })
}

// noHeaderError says that a request has no such header.
type noHeaderError struct{ header string }

func (e *noHeaderError) Error() string {
	return fmt.Sprintf("the request has no header %.60q, which the template needs; "+
		"{header:%[1]s|anonymous} gives such requests a key", e.header)
}

// repeatedHeaderError says that a request has a header several times. The server behind the proxy
// may read one of the values, so a client could choose its key with the others.
type repeatedHeaderError struct {
	header string
	n      int
}

func (e *repeatedHeaderError) Error() string {
	return fmt.Sprintf("the header %.60q is sent %d times, so it identifies no client; send it "+
		"once", e.header, e.n)
}

// contradictedProxyError says that two headers that proxies set say different things.
type contradictedProxyError struct{ name, forwarded, original string }

func (e *contradictedProxyError) Error() string {
	return fmt.Sprintf("{%s}: %s and %s differ, or there are several, so one of them is the "+
		"client's; let the proxy remove it", e.name, e.forwarded, e.original)
}

func (w *web) placeholder(name string, r *http.Request) (string, error) {
	if header, ok := strings.CutPrefix(name, "header:"); ok {
		return ofHeader(header, r)
	}
	switch name {
	case "host":
		return hostOf(r)
	case "ip":
		return w.clientAddress(r)
	case "method":
		method, err := ofProxy(r, name, "X-Forwarded-Method", "X-Original-Method")
		if err != nil {
			return "", err
		}
		return cmp.Or(method, r.Method), nil
	case "path":
		uri, err := ofProxy(r, name, "X-Forwarded-Uri", "X-Original-URI")
		if err != nil {
			return "", err
		}
		if uri == "" {
			return r.URL.Path, nil
		}
		u, err := url.ParseRequestURI(uri)
		if err != nil {
			return "", fmt.Errorf("{path}: %.100q is not a URI", uri)
		}
		return path.Clean("/" + u.Path), nil
	}
	return "", fmt.Errorf("{%.60s} is unknown; there is: %s", name, placeholders)
}

// ofProxy is what a proxy says in one of two headers, or empty. Each proxy sets one and passes on
// what its client says in the other, or in the same header beside its own.
func ofProxy(r *http.Request, name, forwarded, original string) (said string, err error) {
	for _, value := range append(r.Header.Values(forwarded), r.Header.Values(original)...) {
		if said != "" && value != "" && value != said {
			return "", &contradictedProxyError{name, forwarded, original}
		}
		said = cmp.Or(said, value)
	}
	return said, nil
}

// ofHeader is what NAME or NAME|DEFAULT stands for.
func ofHeader(named string, r *http.Request) (string, error) {
	header, none, hasDefault := strings.Cut(named, "|")
	if header == "" || strings.ContainsAny(header, " :") { // every request would lack it
		return "", fmt.Errorf("{header:%.60s}: %.60q is not the name of a header", named, header)
	}
	value, err := headerOf(r, header)
	switch {
	case value != "" || err != nil:
		return value, err
	case hasDefault:
		return none, nil
	}
	return "", &noHeaderError{header}
}

// headerOf is the value of a header that a client may send once.
func headerOf(r *http.Request, header string) (string, error) {
	if strings.EqualFold(header, "Host") {
		return r.Host, nil
	}
	switch values := r.Header.Values(header); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	default:
		return "", &repeatedHeaderError{header, len(values)}
	}
}

// hostOf is the host that was asked for.
func hostOf(r *http.Request) (string, error) {
	said, err := ofProxy(r, "host", "X-Forwarded-Host", "X-Original-Host")
	if err != nil {
		return "", err
	}
	if strings.Contains(said, ",") { // each proxy on the way has added one
		return "", fmt.Errorf("{host}: %.100q has several hosts, so some are the client's; let "+
			"the proxy set the header", said)
	}
	host := strings.ToLower(cmp.Or(said, r.Host))
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(host, "."), nil
}

// clientAddress is the address of the connection, or if that is a trusted proxy, the last address
// of X-Forwarded-For that is none: what stands before it may be anybody's invention. The connection
// by a Unix socket is on this machine and has no address, so it is believed.
func (w *web) clientAddress(r *http.Request) (string, error) {
	var addr netip.Addr
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		addr = at.Addr()
	}
	var hops []string
	if lines := r.Header.Values("X-Forwarded-For"); len(lines) > 0 {
		hops = strings.Split(strings.Join(lines, ","), ",")
	}
	for i := len(hops) - 1; i >= 0 && (!addr.IsValid() || w.trusted(addr)); i-- {
		hop := strings.TrimSpace(hops[i])
		next, err := netip.ParseAddr(strings.Trim(hop, "[]"))
		if withPort, e := netip.ParseAddrPort(hop); e == nil {
			next, err = withPort.Addr(), nil
		}
		if err != nil {
			break
		}
		addr = next
	}
	if !addr.IsValid() {
		return "",
			errors.New("{ip}: a client on a Unix socket has no address, and X-Forwarded-For " +
				"gives none")
	}
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String(), nil
	}
	return addr.String(), nil
}

func (w *web) trusted(a netip.Addr) bool {
	a = a.Unmap()
	return slices.ContainsFunc(w.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}
