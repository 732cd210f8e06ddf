package policy

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
)

// Bounds of what is read of Envoy's files.
const (
	maxNesting = 64      // descriptors within descriptors, and metadata within metadata
	maxNodes   = 100_000 // of all files together, with aliases written out
	maxDomain  = limiter.MaxName - len("envoy/")
)

// LoadEnvoy reads a directory of the files that envoyproxy/ratelimit reads, one domain each. They
// are YAML as that program understands it: a number may stand for a text, yes for true, and
// anchors, aliases and merge keys are followed. Fields that it does not know are faults here as
// there, but for atomic, on_error, response_headers and response_metadata beside domain, which are
// ours.
func LoadEnvoy(path string) (*Envoy, error) {
	b, err := load(path, (*page).envoyFile)
	if err != nil {
		return nil, err
	}
	return b.envoySet()
}

// ParseEnvoy reads one such file that is in memory. name is what faults call it.
func ParseEnvoy(name string, data []byte) (*Envoy, error) {
	b := newBook()
	b.parse(name, data, (*page).envoyFile)
	return b.envoySet()
}

func (b *book) envoySet() (*Envoy, error) {
	if err := b.fault(); err != nil {
		return nil, err
	}
	return b.envoy, nil
}

// tree is the content of a file while it is read.
type tree struct {
	*page
	domain  *Domain
	anchors map[string]ast.Node
}

// envoyFile reads a document of an Envoy rate limit service.
func (p *page) envoyFile(n ast.Node) {
	p.envoy.sum = sha256.Sum256(append(p.envoy.sum[:],
		strings.Join(append(p.lines, p.file), "\n")...))
	if n == nil {
		p.faultAt(1, 1, "domain", "is missing; a file has domain and descriptors")
		return
	}
	before := p.count()
	t := &tree{page: p, domain: &Domain{}, anchors: map[string]ast.Node{}}
	var descriptors, name ast.Node
	t.fields(n, "the file", []string{
		"domain", "descriptors", "atomic", "on_error",
		"response_headers", "response_metadata",
	},
		func(field string, v ast.Node) {
			switch field {
			case "domain":
				name = v
				t.domain.Name = t.text(v, field)
			case "descriptors":
				descriptors = v
			case "atomic":
				t.domain.Atomic = t.flag(v, field)
			case "on_error":
				i, err := (value{v}).word(limiter.Words["on_error"])
				if t.domain.OnError = limiter.OnError(i); err != nil {
					t.fault(v, field, err.Error())
				}
			case "response_headers":
				t.domain.ResponseHeaders = t.flag(v, field)
			case "response_metadata":
				t.domain.ResponseMetadata = t.flag(v, field)
			}
		})
	switch {
	case p.count() > before:
	case t.domain.Name == "":
		t.fault(n, "domain", "is missing or empty")
	case len(t.domain.Name) > maxDomain:
		t.fault(name, "domain", fmt.Sprintf("has %d bytes; at most %d are accepted",
			len(t.domain.Name), maxDomain))
	case p.files[t.domain.Name] != "":
		t.fault(name, "domain", fmt.Sprintf("%q is also the domain of %s; write all its "+
			"descriptors into one file", t.domain.Name, p.files[t.domain.Name]))
	default:
		// its name is made of the domain's
		if _, err := t.domain.NewLimit(1, limiter.MinPer, false); err != nil {
			t.fault(name, "domain", strings.TrimPrefix(err.Error(), "name: "))
			return
		}
		p.files[t.domain.Name] = p.file
		p.envoy.domains[t.domain.Name] = t.domain
		t.list(descriptors, &t.domain.level, nil)
	}
}

// list reads the descriptors of one depth; path is that of the depth above.
func (t *tree) list(n ast.Node, to *level, path []string) {
	items, ok := t.items(n, "descriptors")
	if !ok {
		return
	}
	if len(path) == maxNesting {
		t.fault(n, "descriptors", fmt.Sprintf("go deeper than %d", maxNesting))
		return
	}
	for _, item := range items {
		t.descriptor(t.resolve(item), to, path)
	}
}

// descriptor reads one descriptor, and all below it.
func (t *tree) descriptor(n ast.Node, to *level, path []string) {
	before := t.count()
	given := t.readDescriptor(n)
	d, r := &given.d, &given.r
	wild := strings.Contains(d.value, "*")
	switch {
	case t.count() > before:
		return
	case d.key == "":
		t.fault(n, "key", "is missing or empty")
		return
	case d.shared && !wild:
		t.fault(given.share, "share_threshold", "is for values with a *")
		return
	case to.has(d):
		t.fault(n, "key", fmt.Sprintf("%q is given twice at this depth",
			shorten(pathStep(d.key, d.value))))
		return
	}
	path = append(slices.Clip(path), pathStep(d.key, d.value))
	if given.limit != nil {
		r.Path = strings.Join(path, ".")
		t.rateLimit(given.limit, r)
		d.rule = r
	}
	to.add(d, wild)
	if given.below != nil {
		t.list(given.below, &d.level, path)
	}
	if d.valueToMetric {
		d.measure()
	}
}

// givenDescriptor is a descriptor as it stands in the file, with nodes that are read later.
type givenDescriptor struct {
	d                   descriptor
	r                   Rule
	limit, below, share ast.Node
}

func (t *tree) readDescriptor(n ast.Node) *givenDescriptor {
	given := new(givenDescriptor)
	d, r := &given.d, &given.r
	t.fields(n, "a descriptor", []string{
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric",
		"value_to_metric",
		"share_threshold", "metadata",
	}, func(field string, v ast.Node) {
		switch field {
		case "key":
			d.key = t.text(v, field)
		case "value":
			d.value = t.text(v, field)
		case "rate_limit":
			given.limit = v
		case "descriptors":
			given.below = v
		case "shadow_mode":
			r.Shadow = t.flag(v, field)
		case "quota_mode":
			r.Quota = t.flag(v, field)
		case "detailed_metric":
			r.detailed = t.flag(v, field)
		case "value_to_metric":
			d.valueToMetric = t.flag(v, field)
		case "share_threshold":
			given.share, d.shared = v, t.flag(v, field)
		case "metadata":
			r.Metadata = t.object(v)
		}
	})
	return given
}

func (l *level) has(d *descriptor) bool {
	return l.exact[Entry{d.key, d.value}] != nil || d.value == "" && l.bare[d.key] != nil ||
		slices.ContainsFunc(l.patterns, func(p *descriptor) bool {
			return p.key == d.key && p.value == d.value
		})
}

func (l *level) add(d *descriptor, wild bool) {
	switch {
	case wild:
		l.patterns = append(l.patterns, d)
	case d.value == "":
		if l.bare == nil {
			l.bare = map[string]*descriptor{}
		}
		l.bare[d.key] = d
	default:
		if l.exact == nil {
			l.exact = map[Entry]*descriptor{}
		}
		l.exact[Entry{d.key, d.value}] = d
	}
}

// measure notes in all rules from d on that a value on the way to them is to be seen in metrics.
func (d *descriptor) measure() {
	if d.rule != nil {
		d.rule.measured = true
	}
	for _, below := range d.exact {
		below.measure()
	}
	for _, below := range d.patterns {
		below.measure()
	}
	for _, below := range d.bare {
		below.measure()
	}
}

// rateLimit reads a rate_limit into r.
func (t *tree) rateLimit(n ast.Node, r *Rule) {
	before := t.count()
	given := t.readRateLimit(n, r)
	if t.count() > before || !t.checkRateLimit(n, r, &given) {
		return
	}
	per, _ := EnvoyUnit(r.Unit)
	if !r.Unlimited && r.Requests > 0 {
		var err error
		if r.Limit, err = t.domain.NewLimit(int64(r.Requests), per, r.Shadow ||
			r.Quota); err != nil {
			t.fault(n, "rate_limit", err.Error())
			return
		}
	}
	r.Domain, r.Number, r.measured = t.domain.Name, len(t.envoy.rules), r.detailed
	t.envoy.rules = append(t.envoy.rules, r)
}

// givenRateLimit is where the fields of a rate_limit stand in the file.
type givenRateLimit struct {
	unit, requests ast.Node
	replaces       map[string]ast.Node // by the name of the limit that is replaced
}

func (t *tree) readRateLimit(n ast.Node, r *Rule) givenRateLimit {
	given := givenRateLimit{replaces: map[string]ast.Node{}}
	known := []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}
	t.fields(n, "a rate_limit", known, func(field string, v ast.Node) {
		switch field {
		case "unit":
			given.unit, r.Unit = v, strings.ToLower(t.text(v, field))
		case "requests_per_unit":
			given.requests, r.Requests = v, t.number(v, field)
		case "unlimited":
			r.Unlimited = t.flag(v, field)
		case "name":
			r.Name = t.text(v, field)
		case "replaces":
			items, _ := t.items(v, field)
			for _, item := range items {
				name := t.replaced(item)
				r.Replaces, given.replaces[name] = append(r.Replaces, name), item
			}
		}
	})
	return given
}

// replaced is the name in an entry of replaces.
func (t *tree) replaced(item ast.Node) (name string) {
	faults := t.count()
	t.fields(t.resolve(item), "an entry of replaces", []string{"name"},
		func(field string, v ast.Node) {
			name = t.text(v, field)
		})
	if name == "" && t.count() == faults {
		t.fault(item, "replaces", "has an entry without a name")
	}
	return name
}

// checkRateLimit notes the first fault of r, if there is one.
func (t *tree) checkRateLimit(n ast.Node, r *Rule, given *givenRateLimit) (good bool) {
	const units = "second, minute, hour, day, week, month and year are accepted"
	_, known := EnvoyUnit(r.Unit)
	switch {
	case r.Unlimited && r.Unit != "":
		t.fault(given.unit, "unit", "is given beside unlimited; leave one of them out")
	case !r.Unlimited && !known && given.unit == nil:
		t.fault(n, "unit", "is missing; "+units)
	case !r.Unlimited && !known:
		t.fault(given.unit, "unit", fmt.Sprintf("%q is unknown; %s", shorten(r.Unit), units))
	case !r.Unlimited && given.requests == nil:
		t.fault(n, "requests_per_unit", "is missing; 0 denies everything")
	case r.Name != "" && given.replaces[r.Name] != nil:
		t.fault(given.replaces[r.Name], "replaces", "names the limit itself")
	default:
		return true
	}
	return false
}
