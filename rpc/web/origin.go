package web

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"penstock/rpc/page"
)

// Hosts are the names that requests to a listener may have in Host. An attacker can point a name of
// his own at this machine and have a browser that runs here ask under it (DNS rebinding): the
// browser then takes the node for a part of the attacker's site. An address cannot be abused like
// that, nor can the names of loopback, so those are always accepted. nil accepts every name.
type Hosts struct {
	names map[string]bool
	any   bool // "*" is among them
}

// NewHosts makes a list of names. A port that one of them has is dropped: it plays no part in what
// Hosts are for.
func NewHosts(names ...string) *Hosts {
	h := &Hosts{names: make(map[string]bool)}
	for _, name := range names {
		switch name = hostName(name); name {
		case "":
		case "*":
			h.any = true
		default:
			h.names[name] = true
		}
	}
	return h
}

// accepts reports whether a request may have that Host. A browser always sends one, so a request
// without it is no browser's.
func (h *Hosts) accepts(host string) bool {
	if h == nil || h.any {
		return true
	}
	name := hostName(host)
	if name == "" || h.names[name] || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// lists reports whether name was given to NewHosts.
func (h *Hosts) lists(name string) bool { return h != nil && h.names[hostName(name)] }

// hostName is host in lower case, without a port, brackets, or the dot of a full name.
func hostName(host string) string {
	host = strings.ToLower(host)
	if strings.Contains(host, ":") { // an error would be memory for nothing
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return strings.TrimSuffix(host, ".")
}

// screened refuses requests that a browser makes for a page of somebody else. Loopback is no
// password: every page that a browser on this machine shows can send requests to it. Health answers
// everybody; it does and tells nothing.
func (w *web) screened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var f error
		switch {
		case healthPath(r.URL.Path):
		case r.URL.Path == "/v1/auth":
			f = w.Hosts.foreignAuth(r)
		case !overSocket(r) && !w.Hosts.accepts(r.Host):
			f = refusal(http.StatusMisdirectedRequest, "host",
				"%.100q is not a name of this node; use an address or localhost, or start the "+
					"node with --http-host %[1]s", hostName(r.Host))
		case r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/ui/"):
		case w.Hosts.crossSite(r):
			f = refusal(http.StatusForbidden, "origin",
				"a page of another site asks; that is refused")
		default:
			f = unreadable(r)
		}
		if f != nil {
			w.Node.Stats().Refused.Add(1)
			page.Error(rw, f)
			return
		}
		next.ServeHTTP(rw, r)
	})
}

// overSocket reports whether r came by a Unix socket, which no page can reach.
func overSocket(r *http.Request) bool {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return at != nil && at.Network() == "unix"
}

// crossSite reports whether r says that a page of another origin caused it. Sec-Fetch-Site is what
// browsers of today send; Origin is for older ones. Neither can be set by a page.
func (h *Hosts) crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none": // none: a person has typed the address
		return false
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return false
		}
		u, err := url.Parse(origin)
		return err != nil || u.Host == "" || u.Host != r.Host && !h.lists(u.Host)
	}
	return true
}

// proxyMarks are headers by which proxies tell what their client has asked for. A page of another
// site cannot add them: its browser asks first whether it may, and no answer here says yes.
var proxyMarks = []string{
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Method", "X-Forwarded-Proto",
	"X-Forwarded-Uri",
	"X-Original-Host", "X-Original-Method", "X-Original-Uri", "X-Original-Url", "X-Real-Ip",
	"Forwarded", "Via",
}

// foreignAuth says what is wrong with a question of forward-auth. Proxies ask for other people:
// they pass on the Host, the Origin and the Sec-Fetch-Site of their clients. So a foreign Host is
// no fault here, and a cross-site request is one only if nothing in it is a proxy's: its Host is
// this node's, and it has none of a proxy's headers.
func (h *Hosts) foreignAuth(r *http.Request) error {
	marked := slices.ContainsFunc(proxyMarks,
		func(name string) bool { return r.Header[name] != nil })
	if marked || overSocket(r) || !h.accepts(r.Host) || !h.crossSite(r) {
		return nil
	}
	return refusal(http.StatusForbidden, "origin", "a page of another site asks, and not a proxy. "+
		"Let your proxy send X-Original-URI or an X-Forwarded- header (nginx: "+
		"proxy_set_header X-Original-URI $request_uri)")
}

// unreadable says what is wrong with the form of a body. A page of another site may send texts and
// forms without asking anybody, so these are refused, from a browser in any case; curl -d calls
// what it sends a form, and is believed to send JSON.
func unreadable(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" &&
		!strings.EqualFold(coding, "identity") {
		return refusal(http.StatusUnsupportedMediaType, "content-encoding",
			"%.40q is not read here; send the body as it is", coding)
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	browser := r.Header.Get("Origin") != "" || r.Header.Get("Referer") != "" ||
		r.Header.Get("Sec-Fetch-Site") != ""
	switch {
	case kind == "text/plain" || kind == "multipart/form-data" || browser &&
		(err != nil || kind == "application/x-www-form-urlencoded"):
		return refusal(http.StatusUnsupportedMediaType, "content-type",
			"%.60q is not read here; send application/json", r.Header.Get("Content-Type"))
	}
	return nil
}
