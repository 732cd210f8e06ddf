package policy

import (
	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
)

// Page is a YAML file that has limits among other things. The caller walks through it and knows its
// other fields. It is read as strictly as a file of limits, and its faults look the same.
type Page struct{ page *page }

// Read reads a file that is in memory; body is called with what it holds, unless that is nothing or
// no YAML. Its error is Faults, those that body has found as well.
func Read(name string, data []byte, body func(*Page, ast.Node)) (*Set, error) {
	b := newBook()
	b.parse(name, data, func(p *page, n ast.Node) {
		if n != nil {
			body(&Page{p}, n)
		}
	})
	return b.set()
}

// Limits reads a list of limits.
func (p *Page) Limits(n ast.Node) { p.page.limitList(n) }

// Limit is one of those that Limits has read so far, or nil.
func (p *Page) Limit(name string) *limiter.Limit { return p.page.limits[name] }

// Fault reports a fault of n, or of a field with the value n. reason says what is wrong and what is
// accepted.
func (p *Page) Fault(n ast.Node, field, reason string) { p.page.fault(n, shorten(field), reason) }

// Faults is how many there are so far.
func (p *Page) Faults() int { return p.page.count() }

// Text is a value that has to be a text. What YAML takes for a number or a truth value has to be
// quoted to be one.
func Text(n ast.Node) (string, error) { return value{n}.text() }

// FieldName is the name of a field of a mapping, quoted or not.
func FieldName(key ast.MapKeyNode) string { return fieldName(key) }

// Number is a value that has to be a whole number, in decimal digits.
func Number(n ast.Node) (int64, error) { return value{n}.number() }

// Flag is a value that has to be true or false.
func Flag(n ast.Node) (bool, error) { return value{n}.flag() }

// Describe says what a value is: "a number", "a list".
func Describe(n ast.Node) string { return describe(n) }
