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
	"strings"

	"penstock/limiter/rules"
	"penstock/rpc/access"
	"penstock/rpc/door"
)

// proxies are the networks of proxies that are trusted. With them a request says which client has
// sent it, and what a template makes of it.
type proxies []netip.Prefix

// caller is the client of a request. One on a Unix socket has no address.
func (p proxies) caller(r *http.Request) door.Caller {
	from := door.Caller{TLS: r.TLS, Pass: access.Of(r.Context()), Remote: r.RemoteAddr}
	from.Addr, _ = p.clientAddress(r)
	return from
}

// attributes are those of the request that a proxy asks about, by the names that rules have for
// them. An attribute that the request lacks is left out.
func (p proxies) attributes(r *http.Request, names []string) (map[string]string, error) {
	all := map[string]string{}
	for _, name := range names {
		if name != "method" && name != "path" && name != "host" && name != "ip" &&
			!strings.HasPrefix(name, "header:") {
			continue
		}
		v, err := p.placeholder(name, r)
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
//	{host}         X-Forwarded-Host, X-Original-Host, the host of X-Original-URL, or Host,
//	               in lower case, without a port
//	{ip}           the client's address; an IPv6 address as its /64, which one client has whole
//	{method}       X-Forwarded-Method, X-Original-Method, or the method itself
//	{path}         of X-Forwarded-Uri, X-Original-URI or X-Original-URL, decoded and cleaned,
//	               without its query; else the path itself
//
// How values are kept apart says rules.Template.
func (p proxies) fill(template string, r *http.Request) (string, error) {
	t, err := rules.ParseTemplate(template)
	if err != nil {
		return "", fmt.Errorf("%w; a template has text and %s", err, placeholders)
	}
	return t.Fill(func(name string) (string, error) { return p.placeholder(name, r) })
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
type contradictedProxyError struct {
	name    string
	headers []string
}

func (e *contradictedProxyError) Error() string {
	last := len(e.headers) - 1
	return fmt.Sprintf("{%s}: %s and %s differ, or there are several, so one of them is the "+
		"client's; let the proxy remove it", e.name, strings.Join(e.headers[:last], ", "),
		e.headers[last])
}

func (p proxies) placeholder(name string, r *http.Request) (string, error) {
	if header, ok := strings.CutPrefix(name, "header:"); ok {
		return ofHeader(header, r)
	}
	switch name {
	case "host":
		return hostOf(r)
	case "ip":
		return p.clientAddress(r)
	case "method":
		method, err := ofProxy(r, name, nil, "X-Forwarded-Method", "X-Original-Method")
		if err != nil {
			return "", err
		}
		return cmp.Or(method, r.Method), nil
	case "path":
		uri, err := ofProxy(r, name, (*url.URL).RequestURI, "X-Forwarded-Uri", "X-Original-URI")
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

// originalURL is where ingress-nginx says what its client has asked for, scheme and host included.
const originalURL = "X-Original-URL"

// ofProxy is what a proxy says in one of some headers, or, unless part is nil, in that part of
// X-Original-URL; empty if it says nothing. Each proxy sets one of them and passes on what its
// client says in the others, or in the same header beside its own.
func ofProxy(
	r *http.Request, name string, part func(*url.URL) string, headers ...string,
) (said string, err error) {
	var values []string
	for _, header := range headers {
		values = append(values, r.Header.Values(header)...)
	}
	if part != nil {
		headers = append(headers, originalURL)
		for _, value := range r.Header.Values(originalURL) {
			u, err := url.ParseRequestURI(value)
			if err != nil {
				return "", fmt.Errorf("{%s}: %s %.100q is not a URL", name, originalURL, value)
			}
			values = append(values, part(u))
		}
	}
	for _, value := range values {
		if said != "" && value != "" && value != said {
			return "", &contradictedProxyError{name, headers}
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
	said, err := ofProxy(r, "host", func(u *url.URL) string { return u.Host },
		"X-Forwarded-Host", "X-Original-Host")
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
func (p proxies) clientAddress(r *http.Request) (string, error) {
	var addr netip.Addr
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		addr = at.Addr()
	}
	var hops []string
	if lines := r.Header.Values("X-Forwarded-For"); len(lines) > 0 {
		hops = strings.Split(strings.Join(lines, ","), ",")
	}
	for i := len(hops) - 1; i >= 0 && (!addr.IsValid() || p.trust(addr)); i-- {
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

func (p proxies) trust(a netip.Addr) bool {
	a = a.Unmap()
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a) })
}
