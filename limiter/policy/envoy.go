package policy

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

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
	p.envoy.sum = sha256.Sum256(append(p.envoy.sum[:], strings.Join(append(p.lines, p.file), "\n")...))
	if n == nil {
		p.faultAt(1, 1, "domain", "is missing; a file has domain and descriptors")
		return
	}
	before := p.count()
	t := &tree{page: p, domain: &Domain{}, anchors: map[string]ast.Node{}}
	var descriptors, name ast.Node
	t.fields(n, "the file", []string{"domain", "descriptors", "atomic", "on_error", "response_headers", "response_metadata"},
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
				var err error
				if t.domain.OnError, err = (value{v}).onError(); err != nil {
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
		t.fault(name, "domain", fmt.Sprintf("has %d bytes; at most %d are accepted", len(t.domain.Name), maxDomain))
	case p.files[t.domain.Name] != "":
		t.fault(name, "domain", fmt.Sprintf("%q is also the domain of %s; write all its descriptors into one file", t.domain.Name, p.files[t.domain.Name]))
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
	var d descriptor
	var r Rule
	var limit, below, share ast.Node
	t.fields(n, "a descriptor", []string{
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric",
		"share_threshold", "metadata",
	}, func(field string, v ast.Node) {
		switch field {
		case "key":
			d.key = t.text(v, field)
		case "value":
			d.value = t.text(v, field)
		case "rate_limit":
			limit = v
		case "descriptors":
			below = v
		case "shadow_mode":
			r.Shadow = t.flag(v, field)
		case "quota_mode":
			r.Quota = t.flag(v, field)
		case "detailed_metric":
			r.detailed = t.flag(v, field)
		case "value_to_metric":
			d.valueToMetric = t.flag(v, field)
		case "share_threshold":
			share, d.shared = v, t.flag(v, field)
		case "metadata":
			r.Metadata = t.object(v)
		}
	})
	wild := strings.Contains(d.value, "*")
	switch {
	case t.count() > before:
		return
	case d.key == "":
		t.fault(n, "key", "is missing or empty")
		return
	case d.shared && !wild:
		t.fault(share, "share_threshold", "is for values with a *")
		return
	case to.has(&d):
		t.fault(n, "key", fmt.Sprintf("%q is given twice at this depth", shorten(pathStep(d.key, d.value))))
		return
	}
	path = append(slices.Clip(path), pathStep(d.key, d.value))
	if limit != nil {
		r.Path = strings.Join(path, ".")
		t.rateLimit(limit, &r)
		d.rule = &r
	}
	to.add(&d, wild)
	if below != nil {
		t.list(below, &d.level, path)
	}
	if d.valueToMetric {
		d.measure()
	}
}

func (l *level) has(d *descriptor) bool {
	return l.exact[Entry{d.key, d.value}] != nil || d.value == "" && l.bare[d.key] != nil ||
		slices.ContainsFunc(l.patterns, func(p *descriptor) bool { return p.key == d.key && p.value == d.value })
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
	var unit, requests ast.Node
	replaces := map[string]ast.Node{}
	t.fields(n, "a rate_limit", []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}, func(field string, v ast.Node) {
		switch field {
		case "unit":
			unit, r.Unit = v, strings.ToLower(t.text(v, field))
		case "requests_per_unit":
			requests, r.Requests = v, t.number(v, field)
		case "unlimited":
			r.Unlimited = t.flag(v, field)
		case "name":
			r.Name = t.text(v, field)
		case "replaces":
			items, _ := t.items(v, field)
			for _, item := range items {
				faults, name := t.count(), ""
				t.fields(t.resolve(item), "an entry of replaces", []string{"name"}, func(field string, v ast.Node) { name = t.text(v, field) })
				if name == "" && t.count() == faults {
					t.fault(item, "replaces", "has an entry without a name")
				}
				r.Replaces, replaces[name] = append(r.Replaces, name), item
			}
		}
	})
	per, known := EnvoyUnit(r.Unit)
	switch {
	case t.count() > before:
		return
	case r.Unlimited && r.Unit != "":
		t.fault(unit, "unit", "is given beside unlimited; leave one of them out")
		return
	case !r.Unlimited && !known && unit == nil:
		t.fault(n, "unit", "is missing; second, minute, hour, day, week, month and year are accepted")
		return
	case !r.Unlimited && !known:
		t.fault(unit, "unit", fmt.Sprintf("%q is unknown; second, minute, hour, day, week, month and year are accepted", shorten(r.Unit)))
		return
	case !r.Unlimited && requests == nil:
		t.fault(n, "requests_per_unit", "is missing; 0 denies everything")
		return
	case r.Name != "" && replaces[r.Name] != nil:
		t.fault(replaces[r.Name], "replaces", "names the limit itself")
		return
	}
	if !r.Unlimited && r.Requests > 0 {
		var err error
		if r.Limit, err = t.domain.NewLimit(int64(r.Requests), per, r.Shadow || r.Quota); err != nil {
			t.fault(n, "rate_limit", err.Error())
			return
		}
	}
	r.Domain, r.Number, r.measured = t.domain.Name, len(t.envoy.rules), r.detailed
	t.envoy.rules = append(t.envoy.rules, r)
}

// fields reads a mapping: each of its fields that has a value, and those that it merges in.
func (t *tree) fields(n ast.Node, what string, known []string, read func(field string, v ast.Node)) {
	seen := map[string]bool{}
	var merged []ast.Node
	for m, depth := t.resolve(n), 0; ; depth++ {
		mapping, ok := m.(*ast.MappingNode)
		if !ok {
			t.fault(n, "", fmt.Sprintf("%s must be a mapping of fields, not %s", what, describe(m)))
			return
		}
		for _, f := range mapping.Values {
			if _, merge := f.Key.(*ast.MergeKeyNode); merge {
				merged = append(merged, t.mergedInto(f.Value)...)
				continue
			}
			name := f.Key.GetToken().Value
			v := t.resolve(f.Value)
			_, empty := v.(*ast.NullNode)
			switch {
			case !slices.Contains(known, name):
				t.fault(f.Key, shorten(name), fmt.Sprintf("is unknown; %s has: %s", what, strings.Join(known, ", ")))
			case !empty && !seen[name]:
				read(name, v)
			}
			seen[name] = true
		}
		if len(merged) == 0 || depth == maxNesting {
			return
		}
		m, merged = merged[0], merged[1:]
	}
}

// mergedInto are the mappings that << names: one, or a list of them.
func (t *tree) mergedInto(n ast.Node) (mappings []ast.Node) {
	n = t.resolve(n)
	if list, ok := n.(*ast.SequenceNode); ok {
		for _, item := range list.Values {
			mappings = append(mappings, t.resolve(item))
		}
		return mappings
	}
	return []ast.Node{n}
}

// items are those of a list.
func (t *tree) items(n ast.Node, field string) ([]ast.Node, bool) {
	if n == nil {
		return nil, false
	}
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		t.fault(n, field, "must be a list, not "+describe(n))
		return nil, false
	}
	return list.Values, true
}

// resolve is the value that n stands for: what an alias names, what has an anchor or a tag. It
// counts what it is asked for, since a few lines of aliases to aliases are as much as one likes.
func (t *tree) resolve(n ast.Node) ast.Node {
	if t.nodes++; t.nodes > maxNodes {
		if t.nodes == maxNodes+1 {
			t.fault(n, "", fmt.Sprintf("the files have more than %d values", maxNodes))
		}
		return &ast.NullNode{BaseNode: &ast.BaseNode{}, Token: n.GetToken()}
	}
	for range maxNesting {
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
			t.anchors[x.Name.GetToken().Value] = n
		case *ast.TagNode:
			n = x.Value
		case *ast.AliasNode:
			name := x.Value.GetToken().Value
			if t.anchors[name] == nil {
				t.fault(x, "", fmt.Sprintf("no anchor is named %q before this", shorten(name)))
				return &ast.NullNode{BaseNode: &ast.BaseNode{}, Token: x.Start}
			}
			n = t.anchors[name]
		default:
			return n
		}
	}
	return n
}

// text reads a text, or what can stand for one: the value 404 is the text "404".
func (t *tree) text(n ast.Node, field string) string {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value
	case *ast.LiteralNode:
		return x.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value
	}
	t.fault(n, field, "must be a text, not "+describe(n))
	return ""
}

// flag reads true or false, in any of the words that YAML 1.1 has for them.
func (t *tree) flag(n ast.Node, field string) bool {
	switch x := n.(type) {
	case *ast.BoolNode:
		return x.Value
	case *ast.StringNode:
		if x.Token.Type == token.StringType { // and not in quotes
			switch strings.ToLower(x.Value) {
			case "y", "yes", "on":
				return true
			case "n", "no", "off":
				return false
			}
		}
	}
	t.fault(n, field, "must be true or false, not "+describe(n))
	return false
}

// number reads a whole number of 32 bits as Go writes it: 0x10 is 16, and so is 020.
func (t *tree) number(n ast.Node, field string) uint32 {
	if _, ok := n.(*ast.IntegerNode); !ok {
		t.fault(n, field, "must be a whole number, not "+describe(n))
		return 0
	}
	digits := n.GetToken().Value
	x, err := strconv.ParseUint(digits, 0, 32)
	if err != nil {
		t.fault(n, field, fmt.Sprintf("is %s; 0 to 4294967295 are accepted", shorten(digits)))
	}
	return uint32(x)
}

// object reads a mapping of anything, as JSON has it.
func (t *tree) object(n ast.Node) map[string]any {
	if _, ok := n.(*ast.MappingNode); !ok {
		t.fault(n, "metadata", "must be a mapping, not "+describe(n))
		return nil
	}
	object, _ := t.any(n, 0).(map[string]any)
	return object
}

// any reads a value of metadata.
func (t *tree) any(n ast.Node, depth int) any {
	if depth == maxNesting {
		t.fault(n, "metadata", fmt.Sprintf("goes deeper than %d", maxNesting))
		return nil
	}
	switch x := n.(type) {
	case *ast.MappingNode:
		object := map[string]any{}
		for _, f := range x.Values {
			if _, merge := f.Key.(*ast.MergeKeyNode); merge {
				for _, m := range t.mergedInto(f.Value) {
					more, _ := t.any(m, depth+1).(map[string]any)
					for name, v := range more {
						if _, given := object[name]; !given {
							object[name] = v
						}
					}
				}
				continue
			}
			object[t.text(t.resolve(f.Key), "metadata")] = t.any(t.resolve(f.Value), depth+1)
		}
		return object
	case *ast.SequenceNode:
		list := make([]any, len(x.Values))
		for i, v := range x.Values {
			list[i] = t.any(t.resolve(v), depth+1)
		}
		return list
	case *ast.NullNode:
		return nil
	case *ast.BoolNode:
		return x.Value
	case *ast.IntegerNode, *ast.FloatNode:
		digits := n.GetToken().Value
		if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
			return float64(i) // numbers of JSON, and of a google.protobuf.Struct
		}
		if f, err := strconv.ParseFloat(digits, 64); err == nil {
			return f
		}
	}
	return t.text(n, "metadata")
}
