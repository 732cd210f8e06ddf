package sim

import (
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

// ReadAttributes calls see with each request of a log, in order of time, and with what names, of
// attributes of rules, say of it. What texts says of an attribute counts, a text with fields in
// braces; else it is the field of that name. A log of format common has more of what doors tell of
// a request: path is decoded and cleaned, ip is of an IPv6 address its /64, header:referer and
// header:user-agent are the combined format's, and a user, referer or agent of "-" is none. What a
// line does not have is left out; lacks are the names of which no line has anything. Key of l is
// not used.
func (l Log) ReadAttributes(file string, r io.Reader, names []string, texts map[string]string,
	see func(at time.Time, attributes map[string]string, cost int64),
) (skipped int, lacks []string, err error) {
	known, format, err := l.format()
	if err != nil {
		return 0, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if !slices.Contains(names, name) {
			return 0, nil, fmt.Errorf("attribute %.40q: no rule asks for it; they ask for: %s", name, strings.Join(names, ", "))
		}
	}
	sources, has := make([]keyOf, len(names)), make([]bool, len(names))
	for i, name := range names {
		text, given := texts[name]
		if !given {
			sources[i] = fieldFor(name, known)
			continue
		}
		t, err := parsePattern(text, known)
		if err != nil {
			return 0, nil, fmt.Errorf("attribute %.40q: %w", name, err)
		}
		sources[i] = t.fill
	}
	all := func(fields func(string) (string, error)) (string, error) {
		values := make([]string, len(names))
		for i, source := range sources {
			v, err := source(fields)
			if strings.Contains(v, separator) {
				return "", fmt.Errorf("its %.40s has a byte of 0 in it", names[i])
			}
			if err == nil && v != "" {
				values[i], has[i] = v, true
			}
		}
		return strings.Join(values, separator), nil
	}
	skipped, err = l.read(file, r, known, format, all, func(at time.Time, key string, cost int64) {
		attributes := make(map[string]string, len(names))
		for i, v := range strings.Split(key, separator) {
			if v != "" {
				attributes[names[i]] = v
			}
		}
		see(at, attributes, cost)
	})
	for i, name := range names {
		if !has[i] {
			lacks = append(lacks, name)
		}
	}
	return skipped, lacks, err
}

// separator stands between the values of attributes.
const separator = "\x00"

var errNoField = errors.New("a log has no such field")

// fieldFor is where an attribute stands in a log: in one with known fields, or in any.
func fieldFor(name string, known []string) keyOf {
	if known == nil {
		return func(fields func(string) (string, error)) (string, error) { return fields(name) }
	}
	field := map[string]string{"header:referer": "referer", "header:user-agent": "agent"}[name]
	if slices.Contains(known, name) {
		field = name
	}
	return func(fields func(string) (string, error)) (string, error) {
		if field == "" {
			return "", errNoField
		}
		v, err := fields(field)
		switch field {
		case "path":
			if whole, err := url.PathUnescape(v); err == nil {
				v = whole
			}
			return path.Clean("/" + v), err
		case "ip":
			if addr, err := netip.ParseAddr(v); err == nil {
				return household(addr), nil
			}
		case "user", "referer", "agent":
			if v == "-" {
				return "", errNoField
			}
		}
		return v, err
	}
}

// household is an address as doors tell of it: an IPv6 address as its /64, which one client has as
// a whole.
func household(addr netip.Addr) string {
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String()
	}
	return addr.String()
}
