package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// directive is one of a configuration of nginx, with those of its block.
type directive struct {
	line  int
	words []string
	block []directive
}

var (
	nginxBlank = regexp.MustCompile(`^(?:\s|#[^\n]*(?:\n|$))+`)
	nginxWord  = regexp.MustCompile(`^(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|` +
		`(?:[^\s;{}"']|\$\{)(?:[^\s;{]|\$\{)*)`)
)

// nginxReader takes directives from a configuration.
type nginxReader struct {
	file, rest string
	line       int
}

// take returns what the next len(s) bytes are, and goes on behind them.
func (r *nginxReader) take(s string) string {
	r.line += strings.Count(s, "\n")
	r.rest = r.rest[len(s):]
	return s
}

// block reads directives up to the end of their block, or of the file. opened is the line where
// the block begins, 0 for the file itself.
func (r *nginxReader) block(opened int) (all []directive, err error) {
	d := directive{}
	for {
		r.take(nginxBlank.FindString(r.rest))
		begun := len(d.words) > 0
		switch {
		case r.rest == "" && (opened > 0 || begun):
			return nil, fmt.Errorf("%s:%d: the file ends within a block or a directive",
				r.file, max(opened, d.line))
		case r.rest == "":
			return all, nil
		case r.rest[0] == '}' && opened > 0 && !begun:
			r.take("}")
			return all, nil
		case r.rest[0] == ';' && begun:
			r.take(";")
			all, d = append(all, d), directive{}
		case r.rest[0] == '{' && begun:
			r.take("{")
			if d.block, err = r.block(d.line); err != nil {
				return nil, err
			}
			all, d = append(all, d), directive{}
		default:
			if err := r.word(&d); err != nil {
				return nil, err
			}
		}
	}
}

// word reads the next word of d.
func (r *nginxReader) word(d *directive) error {
	word := nginxWord.FindString(r.rest)
	if word == "" {
		return fmt.Errorf("%s:%d: %.20q is not expected here", r.file, r.line, r.rest)
	}
	if len(d.words) == 0 {
		d.line = r.line
	}
	d.words = append(d.words, strings.Trim(r.take(word), `"'`))
	return nil
}

// nginxZone is what limit_req_zone or limit_conn_zone says.
type nginxZone struct {
	key, limit, per string
	connections     bool
}

// nginxScope is what a block inherits.
type nginxScope struct {
	match  []field
	limits []directive
	dry    bool
	line   int // of the block
}

// nested reports whether requests of one match may be requests of the other too: their hosts are
// the same, and one path begins with the other.
func nested(a, b []field) bool {
	var host, path [2]string
	for i, match := range [][]field{a, b} {
		for _, f := range match {
			if f.name == "host" {
				host[i] = f.value
			} else {
				path[i] = strings.Trim(f.value, `"*`)
			}
		}
	}
	return host[0] == host[1] &&
		(strings.HasPrefix(path[0], path[1]) || strings.HasPrefix(path[1], path[0]))
}

// importNginx makes a limit of each zone that is used, and a rule of each place that uses it.
func importNginx(d *draft, data []byte) error {
	r := &nginxReader{file: d.file, rest: string(data), line: 1}
	all, err := r.block(0)
	if err != nil {
		return err
	}
	zones := map[string]nginxZone{}
	if err := d.nginxZones(all, zones); err != nil {
		return err
	}
	return d.nginxBlock(all, zones, nginxScope{})
}

func (d *draft) nginxZones(all []directive, zones map[string]nginxZone) error {
	for _, x := range all {
		if err := d.nginxZones(x.block, zones); err != nil {
			return err
		}
		switch x.words[0] {
		case "include":
			d.note(x.line, "include %s: is not read; nginx -T prints all files as one",
				strings.Join(x.words[1:], " "))
		case "limit_req_zone", "limit_conn_zone":
			name, z, err := zoneOf(x)
			if err != nil {
				return fmt.Errorf("%s:%d: %w", d.file, x.line, err)
			}
			zones[name] = z
		}
	}
	return nil
}

// zoneOf reads limit_req_zone and limit_conn_zone.
func zoneOf(x directive) (name string, z nginxZone, err error) {
	z.connections = x.words[0] == "limit_conn_zone"
	for i, w := range x.words[1:] {
		kind, value, _ := strings.Cut(w, "=")
		switch {
		case i == 0:
			z.key = w
		case kind == "zone":
			name, _, _ = strings.Cut(value, ":")
		case kind == "rate":
			n, unit, _ := strings.Cut(value, "r/")
			if _, err := strconv.ParseUint(n, 10, 32); err != nil || unit != "s" && unit != "m" {
				return "", z, fmt.Errorf("rate %q is not like 10r/s or 30r/m", value)
			}
			z.limit, z.per = n, "1"+unit
		}
	}
	if z.key == "" || name == "" || !z.connections && z.limit == "" {
		return "", z, fmt.Errorf("%s needs a key, a zone, and of requests a rate", x.words[0])
	}
	return name, z, nil
}

// nginxBlock follows blocks inwards. A block that has limits of its own inherits none, as in nginx.
func (d *draft) nginxBlock(all []directive, zones map[string]nginxZone, scope nginxScope) error {
	scope = d.nginxScope(all, scope)
	leaf := true
	for _, x := range all {
		if x.block == nil || !strings.Contains(" http server location ", " "+x.words[0]+" ") {
			continue
		}
		leaf = false
		inner := scope
		inner.line = x.line
		if x.words[0] == "location" {
			path, ok := nginxPath(x.words[1:])
			if !ok {
				d.note(x.line, "location %s: is no prefix, so it has no rule",
					strings.Join(x.words[1:], " "))
				continue
			}
			inner.match = with(scope.match, field{"path", text(path)})
		}
		if err := d.nginxBlock(x.block, zones, inner); err != nil {
			return err
		}
	}
	if !leaf || len(scope.limits) == 0 {
		return nil
	}
	return d.nginxRule(zones, scope)
}

// nginxScope is the scope within a block that has these directives.
func (d *draft) nginxScope(all []directive, scope nginxScope) nginxScope {
	var own []directive
	for _, x := range all {
		switch x.words[0] {
		case "limit_req", "limit_conn":
			own = append(own, x)
		case "limit_req_dry_run", "limit_conn_dry_run":
			scope.dry = x.words[len(x.words)-1] == "on"
		case "server_name":
			if strings.Contains(strings.Join(x.words, " "), "~") {
				name := strings.Join(x.words, " ")
				d.note(x.line, "%s: a regular expression is no match here", name)
			} else if len(x.words) > 1 && x.words[1] != "_" && x.words[1] != "" {
				scope.match = with(scope.match, field{"host", texts(x.words[1:])})
			}
		case "limit_rate", "limit_req_status", "limit_conn_status", "limit_except":
			d.note(x.line, "%s: has no counterpart in limits", x.words[0])
		}
	}
	if own != nil {
		scope.limits = own
	}
	return scope
}

// with is match and one more field, in memory of its own. A block within another replaces what has
// its name.
func with(match []field, f field) []field {
	own := slices.DeleteFunc(slices.Clone(match), func(g field) bool { return g.name == f.name })
	return append(own, f)
}

// nginxPath is the pattern of a location, if it is one of a prefix or of one path.
func nginxPath(words []string) (string, bool) {
	switch {
	case len(words) == 1 && strings.HasPrefix(words[0], "/"):
		return words[0] + "*", true
	case len(words) == 2 && words[0] == "=":
		return words[1], true
	case len(words) == 2 && words[0] == "^~":
		return words[1] + "*", true
	}
	return "", false
}

func (d *draft) nginxRule(zones map[string]nginxZone, scope nginxScope) error {
	rule := draftRule{match: scope.match}
	if len(rule.match) == 0 {
		rule.match = []field{{"path", text("*")}}
	}
	for _, x := range scope.limits {
		name, l, err := d.nginxLimit(x, zones)
		if err != nil {
			return err
		}
		if scope.dry {
			l.fields = append(l.fields, field{"dry_run", "true"})
		}
		if was := d.named(name); was != nil && flow(was.fields) != flow(l.fields) {
			d.note(x.line, "zone %s: is used with another burst; the first stands, "+
				"since one counter has one limit", name)
		}
		d.limit(l)
		if zones[name].connections {
			d.note(x.line, "limit_conn %s: takes permits, which clients give back (Reserve); "+
				"no rule applies it", name)
			continue
		}
		key, ok := nginxKey(zones[name].key)
		if !ok {
			d.note(x.line, "zone %s: its key %s is asked for as the attribute zone_%s",
				name, zones[name].key, name)
			key = "{zone_" + name + "}"
		}
		rule.apply = append(rule.apply, field{name, key})
	}
	for _, other := range d.rules {
		if nested(rule.match, other.match) {
			d.note(
				scope.line,
				"a request of a location within another falls under both rules here; "+
					"nginx takes the nearest",
			)
		}
	}
	if len(rule.apply) > 0 {
		d.rules = append(d.rules, rule)
	}
	return nil
}

// nginxLimit makes of limit_req a limit: with nodelay one that admits the burst at once, without it
// one that has callers wait.
func (d *draft) nginxLimit(
	x directive, zones map[string]nginxZone,
) (name string, l draftLimit, err error) {
	burst, delay := int64(0), true
	for _, w := range x.words[1:] {
		value, isBurst := strings.CutPrefix(w, "burst=")
		switch {
		case strings.HasPrefix(w, "zone="):
			name = strings.TrimPrefix(w, "zone=")
		case isBurst:
			if burst, err = strconv.ParseInt(value, 10, 32); err != nil || burst < 0 {
				return "", l, fmt.Errorf("%s:%d: burst %q is no number", d.file, x.line, value)
			}
		case w == "nodelay":
			delay = false
		case strings.HasPrefix(w, "delay="):
			d.note(x.line, "%s: the whole burst waits here, not only what is beyond it", w)
		case x.words[0] == "limit_conn" && name == "":
			name = w
		}
	}
	z, known := zones[name]
	if !known {
		return "", l, fmt.Errorf("%s:%d: there is no zone %q in this file", d.file, x.line, name)
	}
	l.name = name
	algorithm, limit, per := "gcra", z.limit, z.per
	switch {
	case z.connections:
		algorithm, limit, per, burst = "concurrency", x.words[len(x.words)-1], "1m", -1
	case delay && burst > 0:
		algorithm = "leaky_bucket"
	default: // the first request of a key has no excess
		burst++
	}
	l.fields = []field{{"algorithm", algorithm}, {"limit", limit}, {"per", per}}
	if burst >= 0 {
		l.fields = append(l.fields, field{"burst", fmt.Sprint(burst)})
	}
	return name, l, nil
}

// nginxKeys are variables of nginx, and the attributes that /v1/auth knows.
var nginxKeys = map[string]string{
	"$binary_remote_addr": "{ip}", "$remote_addr": "{ip}",
	"$host": "{host}", "$http_host": "{host}", "$server_name": "{host}",
	"$request_method": "{method}", "$uri": "{path}", "$remote_user": "{user}",
}

var nginxVariable = regexp.MustCompile(`\$\{?([a-z0-9_]+)\}?`)

// nginxKey is the template of a key with variables in it.
func nginxKey(key string) (template string, ok bool) {
	ok = true
	template = nginxVariable.ReplaceAllStringFunc(key, func(v string) string {
		v = "$" + strings.Trim(v, "${}")
		if header, found := strings.CutPrefix(v, "$http_"); found && nginxKeys[v] == "" {
			return "{header:" + strings.ReplaceAll(header, "_", "-") + "}"
		}
		if nginxKeys[v] == "" {
			ok = false
		}
		return nginxKeys[v]
	})
	return template, ok
}
