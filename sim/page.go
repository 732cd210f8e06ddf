package sim

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"span": spanText,
	"says": func(name string) string {
		for _, p := range promiseWords {
			if p[0] == name {
				return p[1]
			}
		}
		return ""
	},
	"picture": func(r *ScenarioReport) (template.HTML, error) {
		var b strings.Builder
		err := r.WriteSVG(&b)
		return template.HTML(b.String()), err
	},
}).Parse(pageText))

// WriteHTML writes r as one page that needs nothing else: no script, no network.
func (r *ScenarioReport) WriteHTML(w io.Writer) error { return pageTemplate.Execute(w, r) }
