package main

import (
	"cmp"
	"fmt"
	"strings"

	"penstock/limiter/policy"
)

// envoyDescriptor is a descriptor of envoyproxy/ratelimit.
type envoyDescriptor struct {
	Key, Value string
	RateLimit  *struct {
		Unit            string
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
		Unlimited       bool
		Replaces        []any
	} `yaml:"rate_limit"`
	ShadowMode     bool `yaml:"shadow_mode"`
	QuotaMode      bool `yaml:"quota_mode"`
	ShareThreshold bool `yaml:"share_threshold"`
	Descriptors    []envoyDescriptor
}

// importEnvoy makes of each rate_limit a limit with windows of its unit, and a rule for requests
// that have the keys of its descriptors as attributes.
func importEnvoy(d *draft, data []byte) error {
	if _, err := policy.ParseEnvoy(d.file, data); err != nil {
		return err
	}
	var file struct {
		Domain      string
		Descriptors []envoyDescriptor
	}
	if err := d.readYAML(data, &file); err != nil {
		return err
	}
	d.note(0, "serve --envoy-config DIR serves this file to Envoys as it is; "+
		"import is for clients of other doors")
	d.envoyLevel(file.Domain, nil, file.Descriptors)
	return nil
}

// envoyLevel adds the descriptors of one level below those of above.
func (d *draft) envoyLevel(domain string, above, level []envoyDescriptor) {
	for _, e := range level {
		path := append(above[:len(above):len(above)], e)
		if e.RateLimit != nil {
			d.envoyLimit(domain, path, level)
		}
		if e.RateLimit != nil && len(e.Descriptors) > 0 {
			d.note(0, "%s: a request with all keys of a deeper descriptor is charged here too; "+
				"Envoy charges only descriptors that match in full", envoyName(domain, path))
		}
		d.envoyLevel(domain, path, e.Descriptors)
	}
}

func (d *draft) envoyLimit(domain string, path, siblings []envoyDescriptor) {
	e, name := path[len(path)-1], envoyName(domain, path)
	if e.RateLimit.RequestsPerUnit == 0 && !e.RateLimit.Unlimited {
		d.note(0, "%s: admits nothing, and limits admit 1 at least: not carried over", name)
		return
	}
	if bare := envoyBare(e, siblings); bare != nil {
		if e.RateLimit.Unlimited || strings.EqualFold(bare.RateLimit.Unit, e.RateLimit.Unit) {
			d.envoyOverride(domain, path, *bare)
			return
		}
		d.note(0, "%s: the limit of %s without a value applies as well, since its unit is another",
			name, e.Key)
	}
	if e.RateLimit.Unlimited {
		d.rules = append(d.rules, draftRule{match: envoyMatch(path)})
		return
	}
	d.envoyNotes(e, name)
	d.limit(draftLimit{name: name})
	d.named(name).fields = envoyFields(e) // an override may have come first
	d.rules = append(d.rules, draftRule{envoyMatch(path), []field{{name, envoyKey(path)}}})
}

// envoyBare is the sibling of e that has the same key and no value, nil if there is none that
// limits. The value of e goes before it.
func envoyBare(e envoyDescriptor, siblings []envoyDescriptor) *envoyDescriptor {
	for _, s := range siblings {
		limits := s.RateLimit != nil && !s.RateLimit.Unlimited
		if e.Value != "" && s.Key == e.Key && s.Value == "" && limits {
			return &s
		}
	}
	return nil
}

// envoyNotes says what of e has no counterpart.
func (d *draft) envoyNotes(e envoyDescriptor, name string) {
	if e.QuotaMode {
		d.note(0, "%s: quota_mode: is a limit like others here, which refuses by itself", name)
	}
	if e.ShareThreshold {
		d.note(0, "%s: share_threshold: each value is counted on its own here", name)
	}
	if len(e.RateLimit.Replaces) > 0 {
		d.note(0, "%s: replaces: both limits apply here", name)
	}
}

// envoyOverride makes of the limit for a value an override of bare, its sibling without one.
func (d *draft) envoyOverride(domain string, path []envoyDescriptor, bare envoyDescriptor) {
	e := path[len(path)-1]
	name := envoyName(domain, append(path[:len(path)-1:len(path)-1], bare))
	d.limit(draftLimit{name: name})
	var keys []string
	for _, p := range path {
		if p.Value == "" {
			keys = append(keys, "*")
		} else if p.Key == e.Key || strings.Contains(p.Value, "*") {
			keys = append(keys, p.Value)
		}
	}
	what := field{"limit", fmt.Sprint(e.RateLimit.RequestsPerUnit)}
	if e.RateLimit.Unlimited {
		what = field{"unlimited", "true"}
	}
	l := d.named(name)
	l.overrides = append(l.overrides, flow([]field{{"key", text(strings.Join(keys, "|"))}, what}))
}

func envoyFields(e envoyDescriptor) []field {
	fields := []field{
		{"algorithm", "fixed_window"},
		{"limit", fmt.Sprint(e.RateLimit.RequestsPerUnit)},
		{"per", map[string]string{ // months and years of Envoy have 30 and 365 days
			"second": "1s", "minute": "1m", "hour": "1h", "day": "24h",
			"week": "7d", "month": "30d", "year": "365d",
		}[strings.ToLower(e.RateLimit.Unit)]},
	}
	if e.ShadowMode {
		fields = append(fields, field{"dry_run", "true"})
	}
	return fields
}

func envoyName(domain string, path []envoyDescriptor) string {
	name := domain
	for _, e := range path {
		name += "/" + e.Key
		if e.Value != "" {
			name += "=" + e.Value
		}
	}
	return name
}

func envoyMatch(path []envoyDescriptor) (match []field) {
	for _, e := range path {
		match = append(match, field{e.Key, text(cmp.Or(e.Value, "*"))})
	}
	return match
}

// envoyKey are the values that the descriptors leave open. Values that are given are in the limit's
// name.
func envoyKey(path []envoyDescriptor) string {
	var keys []string
	for _, e := range path {
		if e.Value == "" || strings.Contains(e.Value, "*") {
			keys = append(keys, "{"+e.Key+"}")
		}
	}
	if len(keys) == 0 {
		return "all"
	}
	return strings.Join(keys, "|")
}
