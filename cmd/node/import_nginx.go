package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/limiter"
)

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
	all, err := r.block(0, 0)
	if err != nil {
		return err
	}
	zones := map[string]nginxZone{}
	if err := d.nginxZones(all, zones); err != nil {
		return err
	}
	d.nginxIncludes(all, nginxDump.Match(data), false)
	return d.nginxBlock(all, zones, nginxScope{})
}

// nginxDump is what nginx -T prints before each file.
var nginxDump = regexp.MustCompile(`(?m)^# configuration file .*:$`)

// nginxIncludes says which files were not read, or, in what nginx -T prints, which ones have lost
// the server or location that they are included in.
func (d *draft) nginxIncludes(all []directive, dumped, inner bool) {
	for _, x := range all {
		d.nginxIncludes(x.block, dumped, inner || x.words[0] == "server")
		switch files := strings.Join(x.words[1:], " "); {
		case x.words[0] != "include":
		case !dumped:
			d.note(x.line, "include %s: is not read; nginx -T prints all files as one", files)
		case inner:
			d.note(x.line, "include %s: nginx -T prints it elsewhere, so limits that stand "+
				"directly in it are taken for all requests", files)
		}
	}
}

func (d *draft) nginxZones(all []directive, zones map[string]nginxZone) error {
	for _, x := range all {
		if err := d.nginxZones(x.block, zones); err != nil {
			return err
		}
		switch x.words[0] {
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
				d.note(x.line, "location %s: is not a prefix, so it has no rule",
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
				d.note(x.line, "%s: a regular expression cannot be matched here", name)
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

// nginxLimit makes of limit_req a limit that admits at once what nginx does, and has callers wait
// where nginx does; of limit_conn one of permits.
func (d *draft) nginxLimit(
	x directive, zones map[string]nginxZone,
) (name string, l draftLimit, err error) {
	connections := x.words[0] == "limit_conn"
	burst, free := int64(0), int64(0) // requests beyond the first one; those that do not wait
	for _, w := range x.words[1:] {
		word, value, _ := strings.Cut(w, "=")
		switch {
		case word == "zone":
			name = value
		case word == "burst":
			burst, err = nginxNumber(d, x, word, value)
		case w == "nodelay":
			free = math.MaxInt64
		case word == "delay":
			free, err = nginxNumber(d, x, word, value)
		case connections && name == "":
			name = w
		}
		if err != nil {
			return "", l, err
		}
	}
	z, known := zones[name]
	if !known {
		return "", l, fmt.Errorf("%s:%d: there is no zone %q in this file; "+
			"nginx -T prints all files as one", d.file, x.line, name)
	}
	l.name = name
	if connections {
		l.fields = []field{
			{"algorithm", "concurrency"}, {"limit", x.words[len(x.words)-1]}, {"per", "1m"},
		}
		return name, l, nil
	}
	l.fields = d.nginxRate(x, name, z, burst, min(free, burst))
	return name, l, nil
}

func nginxNumber(d *draft, x directive, word, value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s:%d: %s %q is not a number", d.file, x.line, word, value)
	}
	return n, nil
}

// nginxRate are the fields of a limit that admits burst requests beyond the first one, free of them
// at once and the others each at its turn.
func (d *draft) nginxRate(x directive, name string, z nginxZone, burst, free int64) []field {
	fields := []field{{"algorithm", "gcra"}, {"limit", z.limit}, {"per", z.per}}
	at := func(n int64) field { return field{"burst", fmt.Sprint(n)} }
	if free == burst {
		return append(fields, at(burst+1)) // the first request of a key has no excess
	}
	rate, _ := strconv.ParseInt(z.limit, 10, 32) // zoneOf has read it
	per, _ := time.ParseDuration(z.per)
	if rate == 0 {
		return append(fields, at(free+1)) // reading the limit says that it is 0
	}
	wait := limiter.LongestDelay
	if float64(burst-free)*float64(per)/float64(rate) <= float64(wait) {
		wait = time.Duration((burst-free)*int64(per)/rate + int64(time.Millisecond) - 1).
			Truncate(time.Millisecond)
	} else {
		d.note(x.line, "zone %s: the last of %d requests that wait would wait longer than %v, the "+
			"longest max_delay", name, burst-free, limiter.LongestDelay)
	}
	d.note(x.line, "zone %s: nginx holds requests back by itself, and not by auth_request: the "+
		"answer says in Penstock-Delay-Ms how long the program behind it is to wait", name)
	return append(fields, at(free+1), field{"on_deny", "delay"},
		field{"max_delay", nginxWait(wait)})
}

// nginxWait writes a duration as files have it.
func nginxWait(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", int64(d/time.Second))
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
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
