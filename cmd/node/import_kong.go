package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// kongPlugin is a plugin of Kong's declarative configuration.
type kongPlugin struct {
	Name     string
	Service  string
	Route    string
	Consumer string
	Enabled  *bool
	Config   map[string]any
}

type kongRoute struct {
	Name    string
	Paths   []string
	Methods []string
	Hosts   []string
	Plugins []kongPlugin
}

type kongService struct {
	Name    string
	Routes  []kongRoute
	Plugins []kongPlugin
}

type kongFile struct {
	Services  []kongService
	Routes    []kongRoute
	Consumers []struct {
		Username string
		Plugins  []kongPlugin
	}
	Plugins []kongPlugin
}

// importKong makes limits of the plugins rate-limiting and rate-limiting-advanced: one for each of
// its periods, and a rule for each route that it is on.
func importKong(d *draft, data []byte) error {
	var file kongFile
	if err := d.readYAML(data, &file); err != nil {
		return err
	}
	k := &kongImport{draft: d, kong: &file}
	k.add(kongPlace{}, file.Plugins)
	for _, s := range file.Services {
		k.add(k.ofService(s), s.Plugins)
		for _, r := range s.Routes {
			k.add(k.ofRoute(r), r.Plugins)
		}
	}
	for _, r := range file.Routes {
		k.add(k.ofRoute(r), r.Plugins)
	}
	for _, c := range file.Consumers {
		k.add(kongPlace{user: c.Username}, c.Plugins)
	}
	if k.plugins > 1 {
		d.note(0, "the plugin stands at %d places: Kong runs the nearest to a request, "+
			"here all that match apply", k.plugins)
	}
	return k.err
}

// kongImport counts the plugins that limit rates, and keeps the first error.
type kongImport struct {
	*draft
	kong    *kongFile
	plugins int
	err     error
}

// kongPlace is what a plugin is for: requests that match, of one user if it is given.
type kongPlace struct {
	name    string // of a service or route; empty: all requests
	matches [][]field
	user    string
}

func (k *kongImport) ofService(s kongService) kongPlace {
	return kongPlace{name: cmp.Or(s.Name, "service"), matches: k.kongRoutes(s.Routes)}
}

func (k *kongImport) ofRoute(r kongRoute) kongPlace {
	return kongPlace{name: cmp.Or(r.Name, "route"), matches: k.kongRoutes([]kongRoute{r})}
}

// add adds those plugins of a place that limit rates. What a plugin itself says it is for goes
// before where it stands.
func (k *kongImport) add(at kongPlace, plugins []kongPlugin) {
	for _, p := range plugins {
		off := p.Enabled != nil && !*p.Enabled
		if off || !strings.HasPrefix(p.Name, "rate-limiting") || k.err != nil {
			continue
		}
		k.plugins++
		own := at
		if p.Route != "" || p.Service != "" {
			if own, k.err = k.ownPlace(p); k.err != nil {
				return
			}
			own.user = at.user
		}
		own.user = cmp.Or(p.Consumer, own.user)
		k.err = k.kongLimits(own, p)
	}
}

// ownPlace is the route or service that a plugin names.
func (k *kongImport) ownPlace(p kongPlugin) (kongPlace, error) {
	routes := slices.Clone(k.kong.Routes)
	for _, s := range k.kong.Services {
		if p.Route == "" && p.Service == s.Name {
			return k.ofService(s), nil
		}
		routes = append(routes, s.Routes...)
	}
	for _, r := range routes {
		if p.Route != "" && p.Route == r.Name {
			return k.ofRoute(r), nil
		}
	}
	return kongPlace{}, fmt.Errorf("%s: %s is for the route %q, service %q, which is not in this "+
		"file", k.file, p.Name, p.Route, p.Service)
}

// title is a name for limits of the place.
func (p *kongPlace) title() string {
	names := slices.DeleteFunc([]string{p.name, p.user}, func(s string) bool { return s == "" })
	return cmp.Or(strings.Join(names, "-"), "global")
}

// rules are what requests match that the place is for.
func (p *kongPlace) rules() (matches [][]field) {
	switch {
	case p.user == "" && p.name == "":
		return [][]field{{{"path", text("*")}}}
	case p.user == "":
		return p.matches
	case p.name == "":
		return [][]field{{{"user", text(p.user)}}}
	}
	for _, m := range p.matches {
		matches = append(matches, append(slices.Clone(m), field{"user", text(p.user)}))
	}
	return matches
}

// kongRoutes are the matches of routes.
func (d *draft) kongRoutes(routes []kongRoute) (matches [][]field) {
	for _, r := range routes {
		var match []field
		var paths []string
		for _, p := range r.Paths {
			if strings.HasPrefix(p, "~") {
				d.note(0, "route %s: the path %s is a regular expression, and has no rule",
					r.Name, p)
			} else {
				paths = append(paths, p+"*")
			}
		}
		if len(paths) == 0 && len(r.Paths) > 0 {
			continue
		}
		if len(paths) > 0 {
			match = append(match, field{"path", texts(paths)})
		}
		if len(r.Methods) > 0 {
			match = append(match, field{"method", texts(r.Methods)})
		}
		if len(r.Hosts) > 0 {
			match = append(match, field{"host", texts(r.Hosts)})
		}
		if len(match) == 0 {
			match = []field{{"path", text("*")}}
		}
		matches = append(matches, match)
	}
	return matches
}

// kongPeriods are the periods of rate-limiting, in Kong's order.
var kongPeriods = []field{
	{"second", "1s"},
	{"minute", "1m"},
	{"hour", "1h"},
	{"day", "24h"},
	{"month", "month"},
	{"year", "year"},
}

// kongKnown are fields of a plugin that have a counterpart, or say which limits there are.
const kongKnown = " second minute hour day month year limit window_size window_type limit_by " +
	"identifier header_name path fault_tolerant "

func (d *draft) kongLimits(at kongPlace, p kongPlugin) error {
	place, matches := at.title(), at.rules()
	limits, err := kongPeriodsOf(place, p)
	if err != nil || len(limits) == 0 {
		return fmt.Errorf("%s: %s at %s: has no limits, or not one window_size for each",
			d.file, p.Name, place)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Config)) {
		if !strings.Contains(kongKnown, " "+name+" ") {
			d.note(0, "%s at %s: %s has no counterpart", p.Name, place, name)
		}
	}
	if len(matches) == 0 {
		d.note(0, "%s at %s: no rule applies it, for lack of routes that a rule can match",
			p.Name, place)
	}
	for i := range limits { // each plugin counts by itself
		base := limits[i].name
		for n := 2; d.named(limits[i].name) != nil; n++ {
			limits[i].name = fmt.Sprintf("%s-%d", base, n)
		}
		if open, given := p.Config["fault_tolerant"].(bool); given && !open {
			limits[i].fields = append(limits[i].fields, field{"on_error", "deny"})
		}
		d.limit(limits[i])
	}
	key, needs := d.kongKey(place, p.Config, at.user != "")
	for _, match := range matches {
		rule := draftRule{match: slices.Clone(match)}
		given := slices.ContainsFunc(match, func(f field) bool { return f.name == needs })
		if needs != "" && !given {
			rule.match = append(rule.match, field{needs, text("*")})
		}
		for _, l := range limits {
			rule.apply = append(rule.apply, field{l.name, key})
		}
		d.rules = append(d.rules, rule)
	}
	return nil
}

// kongPeriodsOf are the limits of a plugin, one for each of its periods.
func kongPeriodsOf(place string, p kongPlugin) (all []draftLimit, err error) {
	add := func(name, algorithm string, limit any, per string) {
		all = append(all, draftLimit{name: place + "-" + name, fields: []field{
			{"algorithm", algorithm}, {"limit", fmt.Sprint(limit)}, {"per", per},
		}})
	}
	for _, period := range kongPeriods {
		if n, given := p.Config[period.name]; given && p.Name == "rate-limiting" {
			add(period.name, "fixed_window", n, period.value)
		}
	}
	limits, _ := p.Config["limit"].([]any)
	sizes, _ := p.Config["window_size"].([]any)
	if len(limits) != len(sizes) {
		return nil, errors.New("limit and window_size differ in length")
	}
	algorithm := "sliding_window"
	if p.Config["window_type"] == "fixed" {
		algorithm = "fixed_window"
	}
	for i := range limits {
		per := fmt.Sprint(sizes[i]) + "s"
		add(per, algorithm, limits[i], per)
	}
	return all, nil
}

// kongKey is the template of what a plugin counts by, and the attribute that it needs.
func (d *draft) kongKey(
	place string, config map[string]any, ofUser bool,
) (key, needs string) {
	by, _ := config["limit_by"].(string)
	if other, given := config["identifier"].(string); given {
		by = other
	}
	switch by {
	case "ip":
		return "{ip}", ""
	case "header":
		header := "header:" + strings.ToLower(fmt.Sprint(config["header_name"]))
		return "{" + header + "}", header
	case "path":
		return "{path}", ""
	case "service":
		return place, ""
	case "", "consumer", "credential":
	default:
		d.note(0, "%s: limit_by %s is taken for consumer", place, by)
	}
	if !ofUser {
		d.note(0, "%s: counts by consumer, which is the attribute user; "+
			"Kong counts requests without one by their address: add a rule for them", place)
	}
	return "{user}", "user"
}
