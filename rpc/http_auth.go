package rpc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"penstock/cluster"
)

// auth is /v1/auth, for proxies that ask before they pass a request on: nginx auth_request, Traefik ForwardAuth, Caddy
// forward_auth. The query names the limit, a template of the key, a cost, and what a denial looks like, since most proxies
// hand it on to their client: its status (nginx understands no other than 403) and its body, a plain text. The body of the
// question is not read, nor waited for: some proxies pass on how long it is and not the body.
//
//	/v1/auth?limit=per-user&key={header:X-User}&deny_status=503&deny_body=Come+back+later
func (w *web) auth(rw http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		rw.Header().Set("Connection", "close") // else net/http would read the body before it answers
	}
	item, style, f := w.authItem(r)
	if f != nil {
		writeFault(rw, *f)
		return
	}
	w.answer(rw, item, style)
}

func (w *web) authItem(r *http.Request) (item cluster.Item, style answerStyle, f *fault) {
	q, f := readQuery(r, "limit", "key", "cost", "headers", "deny_status", "deny_body")
	if f != nil {
		return item, style, f
	}
	if item, style, f = readItem(q, cluster.OpTake); f != nil {
		return item, style, f
	}
	if status, given := q["deny_status"]; given {
		var err error
		if style.denied, err = strconv.Atoi(status); err != nil || style.denied < 400 || style.denied > 599 {
			return item, style, &fault{Status: http.StatusBadRequest, Field: "deny_status", Text: "deny_status: must be a number from 400 to 599"}
		}
	}
	style.text = q["deny_body"]
	var err error
	if item.Key, err = w.fill(item.Key, r); err != nil {
		return item, style, &fault{Status: http.StatusBadRequest, Field: "key", Text: "key: " + err.Error()}
	}
	return item, style, nil
}

const placeholders = "{header:NAME}, {ip}, {method}, {path}"

// fill replaces the placeholders of a template by what they say of the request:
//
//	{header:NAME}  a header, which must be there
//	{ip}           the client's address; an IPv6 address as its /64, which one client has as a whole
//	{method}       X-Forwarded-Method, X-Original-Method, or the method itself
//	{path}         of X-Forwarded-Uri or X-Original-URI, decoded and cleaned, without its query; else the path itself
//
// What a client chooses must not end one value and begin the next, or it could take the key of somebody else. So in a
// template with several placeholders, % and every byte of its text is written as %XX in the values.
func (w *web) fill(template string, r *http.Request) (string, error) {
	var key strings.Builder
	escape := separators(template)
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
		for _, c := range []byte(value) {
			if strings.IndexByte(escape, c) >= 0 {
				fmt.Fprintf(&key, "%%%02X", c)
			} else {
				key.WriteByte(c)
			}
		}
		if escape != "" && strings.HasPrefix(after, "{") {
			return "", fmt.Errorf("%.100q has two placeholders side by side; put text between them", template)
		}
		rest = after
	}
	return key.String(), nil
}

// separators are the bytes to escape in the values of a template; none if it has one placeholder at most.
func separators(template string) string {
	if strings.Count(template, "{") < 2 {
		return ""
	}
	text := "%"
	for rest := template; ; {
		literal, after, found := strings.Cut(rest, "{")
		text += literal
		if !found {
			return text
		}
		_, rest, _ = strings.Cut(after, "}")
	}
}

func (w *web) placeholder(name string, r *http.Request) (string, error) {
	if header, ok := strings.CutPrefix(name, "header:"); ok {
		value := strings.Join(r.Header.Values(header), ", ") // as one line, which means the same (RFC 9110, 5.3)
		if strings.EqualFold(header, "Host") {
			value = r.Host
		}
		if value == "" {
			return "", fmt.Errorf("the request has no header %.60q, which the template needs", header)
		}
		return value, nil
	}
	switch name {
	case "ip":
		return w.clientAddress(r)
	case "method":
		return firstOf(r.Header.Get("X-Forwarded-Method"), r.Header.Get("X-Original-Method"), r.Method), nil
	case "path":
		forwarded, original := r.Header.Get("X-Forwarded-Uri"), r.Header.Get("X-Original-URI")
		switch {
		case forwarded == "" && original == "":
			return r.URL.Path, nil
		case forwarded != "" && original != "" && forwarded != original:
			return "", errors.New("{path}: X-Forwarded-Uri and X-Original-URI differ, so one of them is the client's; let the proxy remove it")
		}
		uri := firstOf(forwarded, original)
		u, err := url.ParseRequestURI(uri)
		if err != nil {
			return "", fmt.Errorf("{path}: %.100q is no URI", uri)
		}
		return path.Clean("/" + u.Path), nil
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
// none: what stands before it may be anybody's invention. Who is connected by a Unix socket is on this machine and has no
// address, so it is believed.
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
		return "", errors.New("{ip}: who is connected by a Unix socket has no address, and X-Forwarded-For names none")
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
