package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
	"penstock/limiter/rules"
)

// draftRule is a rule that has been read. Its limits are looked up when those of all files are
// known.
type draftRule struct {
	rules.Rule
	page   *page
	node   ast.Node
	places map[string]ast.Node // by the names that package rules has for its fields
}

func (p *page) ruleList(n ast.Node) {
	for _, item := range p.section(n, "rules") {
		if len(p.rules) == rules.MaxRules {
			p.fault(item, "rules", fmt.Sprintf("this is one rule too many; %d are accepted",
				rules.MaxRules))
			return
		}
		p.rule(item)
	}
}

// rule reads a rule. Without a name it is called by its place: "limits.yaml:12", or if another
// stands in the same line, "limits.yaml:12:30".
func (p *page) rule(n ast.Node) {
	before := p.count()
	d := draftRule{page: p, node: n, places: map[string]ast.Node{}}
	has := "a rule has: name, match, apply, unlimited"
	p.fields(n, "", "a rule ", has, func(name string, v ast.Node) (known bool, err error) {
		d.places[name] = v
		switch name {
		case "name":
			err = value{v}.filled(&d.Name, "give the rule a name, or leave it out")
		case "match":
			p.match(v, &d)
		case "apply":
			p.apply(v, &d)
		case "unlimited":
			d.Unlimited, err = value{v}.onlyTrue()
		default:
			return false, nil
		}
		return true, err
	})
	if p.count() > before {
		return
	}
	if d.Name == "" {
		d.Name = p.placeName(n)
	}
	if other, taken := p.ruleNames[d.Name]; taken {
		p.fault(d.place("name"), "name", fmt.Sprintf("%q is the name of another rule, of %s",
			shorten(d.Name), other))
		return
	}
	p.ruleNames[d.Name] = p.file
	p.rules = append(p.rules, d)
}

func (p *page) placeName(n ast.Node) string {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	pos := n.GetToken().Position
	base := []rune(strings.ToValidUTF8(filepath.Base(p.file), "?"))
	name := fmt.Sprintf("%s:%d", string(base[max(0, len(base)-rules.MaxName/8):]), pos.Line)
	if _, taken := p.ruleNames[name]; taken {
		name = fmt.Sprintf("%s:%d", name, pos.Column)
	}
	return name
}

// match reads what a rule asks of attributes: for each a pattern, or a list of them.
func (p *page) match(n ast.Node, d *draftRule) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		p.fault(n, "match", "must be a mapping of attributes to patterns, not "+describe(n))
		return
	}
	d.Match = map[string][]string{}
	for _, v := range m.Values {
		attribute, err := (value{v.Key}).text()
		if err != nil {
			p.fault(v.Key, "match", err.Error())
			continue
		}
		field := "match." + shorten(attribute)
		d.places["match."+attribute] = v.Value
		items := []ast.Node{v.Value}
		if list, several := v.Value.(*ast.SequenceNode); several {
			items = list.Values
		}
		patterns := []string{}
		for i, item := range items {
			d.places[fmt.Sprintf("match.%s[%d]", attribute, i)] = item
			text, err := (value{item}).text()
			if err != nil {
				p.fault(item, field, err.Error())
				continue
			}
			patterns = append(patterns, text)
		}
		d.Match[attribute] = patterns
	}
}

func (p *page) apply(n ast.Node, d *draftRule) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		p.fault(n, "apply", "must be a list of limits and keys, not "+describe(n))
		return
	}
	for i, item := range list.Values {
		at := fmt.Sprintf("apply[%d]", i)
		d.places[at] = item
		var a rules.Apply
		if p.fields(item, at, "", "an entry of apply has: limit, key, plan",
			func(name string, v ast.Node) (known bool, err error) {
				to := map[string]*string{"limit": &a.Limit, "key": &a.Key, "plan": &a.Plan}[name]
				if to == nil {
					return false, nil
				}
				d.places[at+"."+name] = v
				*to, err = value{v}.text()
				return true, err
			}) {
			d.Apply = append(d.Apply, a)
		}
	}
}

// place is where a field stands, or what it would belong to.
func (d *draftRule) place(field string) ast.Node {
	for ; field != ""; field = field[:max(0, strings.LastIndexAny(field, ".["))] {
		if n := d.places[field]; n != nil {
			return n
		}
	}
	return d.node
}

// checkRules says what is wrong with rules beside all limits. A limit that is itself at fault would
// only be said to be missing.
func (b *book) checkRules() []rules.Rule {
	list := make([]rules.Rule, len(b.rules))
	broken := len(b.faults) > 0
	for i := range b.rules {
		d := &b.rules[i]
		list[i] = d.Rule
		var spec *limiter.SpecError
		if err := d.Check(b.limits); !broken && errors.As(err, &spec) {
			d.page.fault(d.place(spec.Field), spec.Field, spec.Reason)
		}
	}
	return list
}
