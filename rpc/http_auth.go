package rpc

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"penstock/cluster"
)

// auth is /v1/auth, for proxies that ask before they pass a request on: nginx auth_request, Traefik ForwardAuth, Caddy
// forward_auth. The query names the limit, a template of the key, a cost, and with deny_status=403 the answer to a
// denial for proxies that understand no 429 (nginx). The body is not read.
//
//	/v1/auth?limit=per-user&key={header:X-User}
func (w *web) auth(rw http.ResponseWriter, r *http.Request) {
	item, denied, f := w.authItem(r)
	if f != nil {
		writeFault(rw, *f)
		return
	}
	w.answer(rw, item, denied)
}

func (w *web) authItem(r *http.Request) (item cluster.Item, denied int, f *fault) {
	q, f := readQuery(r, "limit", "key", "cost", "deny_status")
	if f != nil {
		return item, 0, f
	}
	denied = http.StatusTooManyRequests
	switch q["deny_status"] {
	case "", "429":
	case "403":
		denied = http.StatusForbidden
	default:
		return item, 0, &fault{Status: http.StatusBadRequest, Field: "deny_status", Text: "deny_status: must be 429 or 403"}
	}
	item = cluster.Item{Limit: q["limit"], Cost: 1}
	if cost, given := q["cost"]; given {
		if item.Cost, f = readCost(cost); f != nil {
			return item, 0, f
		}
	}
	key, err := w.fill(q["key"], r)
	if err != nil {
		return item, 0, &fault{Status: http.StatusBadRequest, Field: "key", Text: "key: " + err.Error()}
	}
	item.Key = key
	return item, denied, nil
}

const placeholders = "{header:NAME}, {ip}, {method}, {path}"

// fill replaces the placeholders of a template by what they say of the request:
//
//	{header:NAME}  a header, which must be there
//	{ip}           the client's address; an IPv6 address as its /64, which one client has as a whole
//	{method}       X-Forwarded-Method, X-Original-Method, or the method itself
//	{path}         of X-Forwarded-Uri, X-Original-URI, or the path itself; without its query
func (w *web) fill(template string, r *http.Request) (string, error) {
	var key strings.Builder
	for rest := template; rest != ""; {
		text, from, found := strings.Cut(rest, "{")
		if strings.Contains(text, "}") {
			return "", fmt.Errorf("%.100q has a } without a {; a template has text and %s", template, placeholders)
		}
		key.WriteString(text)
		if !found {
			break
		}
		name, after, closed := strings.Cut(from, "}")
		if !closed {
			return "", fmt.Errorf("%.100q has a { without a }; a template has text and %s", template, placeholders)
		}
		value, err := w.placeholder(name, r)
		if err != nil {
			return "", err
		}
		key.WriteString(value)
		rest = after
	}
	return key.String(), nil
}

func (w *web) placeholder(name string, r *http.Request) (string, error) {
	if header, ok := strings.CutPrefix(name, "header:"); ok {
		value := r.Header.Get(header)
		if value == "" {
			return "", fmt.Errorf("the request has no header %.60q, which the template needs", header)
		}
		return value, nil
	}
	switch name {
	case "ip":
		return w.clientAddress(r), nil
	case "method":
		return firstOf(r.Header.Get("X-Forwarded-Method"), r.Header.Get("X-Original-Method"), r.Method), nil
	case "path":
		uri := firstOf(r.Header.Get("X-Forwarded-Uri"), r.Header.Get("X-Original-URI"))
		if uri == "" {
			return r.URL.Path, nil
		}
		u, err := url.ParseRequestURI(uri)
		if err != nil {
			return "", fmt.Errorf("{path}: %.100q is no URI", uri)
		}
		return u.Path, nil
	}
	return "", fmt.Errorf("{%.60s} is unknown; there is: %s", name, placeholders)
}

func firstOf(words ...string) string {
	i := slices.IndexFunc(words, func(s string) bool { return s != "" })
	if i < 0 {
		return ""
	}
	return words[i]
}

// clientAddress is whoever is connected, or if that is a trusted proxy, the last address of X-Forwarded-For that is
// none: what stands before it may be anybody's invention.
func (w *web) clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr // a Unix socket has no address
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && w.trusted(addr); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = next
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String()
	}
	return addr.String()
}

func (w *web) trusted(a netip.Addr) bool {
	a = a.Unmap()
	return slices.ContainsFunc(w.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}
