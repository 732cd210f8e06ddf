package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// LoggedRequest is what a line of a log says of its request. Lines that say the same share one, so
// its reader may keep by its address what follows from it.
type LoggedRequest struct {
	Attributes map[string]string // by the names that rules ask for
	Memo       any               // the reader's, kept for as long as the request is
}

// mostLoggedRequests bounds how many LoggedRequests are kept for the lines that follow. A log in
// which each request is another one makes them anew.
const mostLoggedRequests = 1 << 17

// ReadAttributes calls see with each request of a log, in order of time, and with what names, of
// attributes of rules, say of it. What texts says of an attribute counts, a text with fields in
// braces; else it is the field of that name. A log of format common has more of what doors tell of
// a request: path is decoded and cleaned, ip is of an IPv6 address its /64, header:referer and
// header:user-agent are the combined format's, and a user, referer or agent of "-" is none. What a
// line does not have is left out; lacks are the names of which no line has anything. Key of l is
// not used.
func (l Log) ReadAttributes(file string, r io.Reader, names []string, texts map[string]string,
	see func(at time.Time, of *LoggedRequest, beside string, cost int64),
) (skipped int, lacks []string, err error) {
	known, format, err := l.format()
	if err != nil {
		return 0, nil, err
	}
	sources, err := attributeSources(names, texts, known)
	if err != nil {
		return 0, nil, err
	}
	joined := func(buf []byte, line logLine) ([]byte, error) {
		for i, source := range sources {
			if i > 0 {
				buf = append(buf, separator)
			}
			start := len(buf)
			with, err := source(buf, line)
			if err != nil {
				continue // a rule that needs it says so
			}
			if bytes.IndexByte(with[start:], separator) >= 0 {
				return with, fmt.Errorf("its %.40s has a byte of 0 in it", names[i])
			}
			buf = with
		}
		return buf, nil
	}
	has := make([]bool, len(names))
	requests := map[string]*LoggedRequest{}
	skipped, err = l.read(file, r, known, format, joined,
		func(at time.Time, key, beside string, cost int64) {
			of := requests[key]
			if of == nil {
				of = &LoggedRequest{Attributes: splitAttributes(key, names, has)}
				if len(requests) < mostLoggedRequests {
					requests[key] = of
				}
			}
			see(at, of, beside, cost)
		})
	for i, name := range names {
		if !has[i] {
			lacks = append(lacks, name)
		}
	}
	return skipped, lacks, err
}

// separator stands between the values of attributes.
const separator = 0

// splitAttributes are the values that were joined, by their names. It notes in has which are there.
func splitAttributes(joined string, names []string, has []bool) map[string]string {
	attributes := make(map[string]string, len(names))
	for i, v := range strings.Split(joined, string(rune(separator))) {
		if v != "" {
			attributes[names[i]], has[i] = v, true
		}
	}
	return attributes
}

// attributeSources says for each name where an attribute stands in a line.
func attributeSources(
	names []string, texts map[string]string, known []string,
) (sources []keyOf, err error) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("attribute %.40q: no rule asks for it; they ask for: %s", name,
				strings.Join(names, ", "))
		}
	}
	for _, name := range names {
		text, given := texts[name]
		if !given {
			sources = append(sources, fieldFor(name, known))
			continue
		}
		t, err := parsePattern(text, known)
		if err != nil {
			return nil, fmt.Errorf("attribute %.40q: %w", name, err)
		}
		sources = append(sources, t.fill)
	}
	return sources, nil
}

var errNoField = errors.New("a log has no such field")

// fieldFor is where an attribute stands in a log: in one with known fields, or in any.
func fieldFor(name string, known []string) keyOf {
	field := name
	if known != nil && !slices.Contains(known, name) {
		field = map[string]string{
			"header:referer": "referer", "header:user-agent": "agent",
			"header:x-forwarded-for": "forwarded", "header:x-request-id": "id",
		}[name]
	}
	if field == "" || known != nil && !slices.Contains(known, field) {
		return func(buf []byte, _ logLine) ([]byte, error) { return buf, errNoField }
	}
	proxied := slices.Contains(known, "forwarded") // also ip and host are - where there is none
	return func(buf []byte, line logLine) ([]byte, error) {
		v, err := line.field(field)
		if err == nil && known != nil {
			v, err = asDoorsTell(field, v)
		}
		if err == nil && proxied && bytes.Equal(v, dash) {
			err = errNoField
		}
		return append(buf, v...), err
	}
}

// asDoorsTell is a field of a web server's log as doors tell of a request.
func asDoorsTell(field string, v []byte) ([]byte, error) {
	switch field {
	case "path":
		return cleanPath(v), nil
	case "ip":
		if bytes.IndexByte(v, ':') < 0 {
			return v, nil // IPv4 is told as it is
		}
		if addr, err := netip.ParseAddr(string(v)); err == nil {
			return []byte(household(addr)), nil
		}
	case "user", "referer", "agent":
		if bytes.Equal(v, dash) {
			return nil, errNoField
		}
	}
	return v, nil
}

// cleanPath is a path without what is escaped in it, and without dots and double slashes.
func cleanPath(v []byte) []byte {
	plain := len(v) > 1 && v[0] == '/' && v[len(v)-1] != '/' && bytes.IndexByte(v, '%') < 0
	if plain && !bytes.Contains(v, []byte("//")) && !bytes.Contains(v, []byte("/.")) {
		return v
	}
	text := string(v)
	if whole, err := url.PathUnescape(text); err == nil {
		text = whole
	}
	return []byte(path.Clean("/" + text))
}

// household is an address as doors tell of it: an IPv6 address as its /64, which one client has as
// a whole.
func household(addr netip.Addr) string {
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String()
	}
	return addr.String()
}
