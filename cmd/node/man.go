package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// manVerb writes a page of the manual for every verb, from the texts of --help.
type manVerb struct {
	Dir string `arg:"" type:"path" complete:"dir" help:"Directory for the pages, made if missing."`
}

// Help is printed below the verb's line.
func (manVerb) Help() string {
	return "For all users of this machine, as root: penstock man /usr/local/share/man/man1."
}

func (v *manVerb) Run(sh shell, ctx *kong.Context) error {
	if err := os.MkdirAll(v.Dir, 0o755); err != nil {
		return err
	}
	all, written := commandsOf(ctx.Kong), 0
	for _, c := range all {
		if c.path != "" && len(c.verbs()) > 0 { // "policy" does nothing alone; its verbs have pages
			continue
		}
		path := filepath.Join(v.Dir, pageOf(c.path)+".1")
		if err := os.WriteFile(path, []byte(manPage(c, all)), 0o644); err != nil {
			return err
		}
		written++
	}
	_, err := fmt.Fprintf(sh.out, "%d pages in %s; to read one: man -l %s\n",
		written, v.Dir, filepath.Join(v.Dir, "penstock.1"))
	return err
}

// pageOf is the name of a verb's page.
func pageOf(path string) string {
	return strings.TrimSuffix("penstock-"+strings.ReplaceAll(path, " ", "-"), "-")
}

// roff is text as troff prints it: a point or an apostrophe at the start of a line would be a
// request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", "\n.br\n").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// manText is a page of the manual that is being written.
type manText struct{ strings.Builder }

func (p *manText) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// entry writes a term and, indented below it, what it means.
func (p *manText) entry(term, text string) { p.line(".TP\n%s\n%s", term, roff(text)) }

func manPage(c command, all []command) string {
	p, name := &manText{}, pageOf(c.path)
	p.line(`.TH %s 1 "" "penstock %s" "Penstock"`, strings.ToUpper(name), roff(version()))
	brief := strings.TrimSuffix(firstSentence(c.node.Help), ".")
	p.line(".SH NAME\n%s \\- %s", roff(name), roff(brief))
	p.synopsis(c)
	p.line(".SH DESCRIPTION\n%s", roff(c.node.Help))
	if c.node.Detail != "" {
		p.line(".PP\n%s", roff(c.node.Detail))
	}
	if c.path == "" {
		p.verbs(all)
	}
	p.arguments(c)
	p.flags(c)
	if c.path == "" {
		p.line(".SH ENVIRONMENT\n" + `Every flag is read from a variable as well: ` +
			`\fB\-\-tls\-cert\fR from \fBPENSTOCK_TLS_CERT\fR. \fBNO_COLOR\fR turns colours off.`)
	}
	p.line(".SH EXIT STATUS\n%s", exitStatus(c.path))
	if c.path == "" {
		p.line(".SH SEE ALSO\n.BR penstock\\-serve (1),\n.BR penstock\\-demo (1)")
	} else {
		p.line(".SH SEE ALSO\n.BR penstock (1)")
	}
	return p.String()
}

func (p *manText) synopsis(c command) {
	p.line(".SH SYNOPSIS\n.B %s", roff(strings.TrimSpace("penstock "+c.path)))
	if c.path == "" {
		p.line(".I verb")
	}
	for _, a := range c.node.Positional {
		if a.Required {
			p.line(".I %s", roff(a.Name))
		} else {
			p.line(`[\fI%s\fR]`, roff(a.Name))
		}
	}
	p.line(`[\fIflags\fR]`)
}

func (p *manText) verbs(all []command) {
	p.line(".SH VERBS")
	for _, verb := range all[1:] {
		if len(verb.verbs()) == 0 {
			p.entry(".BR "+roff(pageOf(verb.path))+" (1)", verb.node.Help)
		}
	}
}

func (p *manText) arguments(c command) {
	if len(c.node.Positional) > 0 {
		p.line(".SH ARGUMENTS")
	}
	for _, a := range c.node.Positional {
		p.entry(".I "+roff(a.Name), a.Help)
	}
}

func (p *manText) flags(c command) {
	p.line(".SH FLAGS")
	group := ""
	for _, f := range c.flags() {
		switch {
		case f.Group != nil && f.Group.Title != group:
			group = f.Group.Title
			p.line(".SS %s", roff(group))
		case f.Group == nil && group != "":
			group = ""
			p.line(".SS Other flags")
		}
		p.entry(manFlag(f), f.Help)
		if d := defaultOf(f); d != "" && takesValue(f) {
			p.line("Default: %s.", roff(d))
		}
	}
}

func manFlag(f *kong.Flag) string {
	text := `\fB\-\-` + roff(f.Name) + `\fR`
	if f.Short != 0 {
		text = `\fB\-` + string(f.Short) + `\fR, ` + text
	}
	if takesValue(f) {
		text += `=\fI` + roff(cmp.Or(f.PlaceHolder, strings.ToUpper(f.Name))) + `\fR`
	}
	return text
}

func exitStatus(path string) string {
	if path == "check" {
		return "0 if allowed, 2 if denied, 1 on error."
	}
	return "0 if it did what it was asked for, else 1."
}

// firstSentence is text up to its first full stop or colon.
func firstSentence(text string) string {
	for _, end := range []string{". ", ": "} {
		text, _, _ = strings.Cut(text, end)
	}
	return text
}
