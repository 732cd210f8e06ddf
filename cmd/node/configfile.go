package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"penstock/textfile"
)

// configFile gives kong the values of serve's --config: a flat YAML file with the flags' names as
// fields. kong asks it only for flags that the command line does not give; variables of the
// environment go before it too.
type configFile struct {
	read   bool
	values map[string]any
}

// Validate has nothing to say before the file is known.
func (c *configFile) Validate(*kong.Application) error { return nil }

// Resolve returns the value that the file has for flag, or nil.
func (c *configFile) Resolve(ctx *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	if parent.Command == nil || parent.Command.Name != "serve" {
		return nil, nil
	}
	if !c.read {
		c.read = true
		if err := c.load(ctx, parent.Command); err != nil {
			return nil, err
		}
	}
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	return c.values[flag.Name], nil
}

func (c *configFile) load(ctx *kong.Context, serve *kong.Command) error {
	flags := map[string]*kong.Flag{}
	for _, f := range serve.Flags {
		flags[f.Name] = f
	}
	path, _ := ctx.FlagValue(flags["config"]).(string)
	if path == "" {
		return nil
	}
	text, err := textfile.Read(path)
	if err == nil {
		c.values, err = parseConfig(path, text, flags)
	}
	if err != nil {
		return &configError{err}
	}
	return nil
}

// configError says that the file of --config is wrong. kong reports it as an error of the flag that
// it was about to set.
type configError struct{ error }

func (e *configError) Error() string { return "--config: " + e.error.Error() }

// parseConfig reads the text of the file at path, which may name any of flags. A value is what the
// command line takes: the text as it is written, since a flag reads text (a name 0123 is not 83),
// and commas between the words of a list.
func parseConfig(path string, text []byte,
	flags map[string]*kong.Flag,
) (values map[string]any, err error) {
	var fields map[string]configValue
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("%s:\n%s", path, yaml.FormatError(err, false, true))
	}
	values = make(map[string]any, len(fields))
	for name, value := range fields {
		if flags[name] == nil || name == "config" || name == "help" {
			return nil,
				fmt.Errorf("%s: %q is not a flag of serve; the fields of this file are the flags' "+
					"names without the dashes", path, name)
		}
		if value.nested {
			return nil, fmt.Errorf("%s: %q has fields or a list in it; this file has plain values "+
				"and lists of them, and a file with limits is for --limits", path, name)
		}
		if value.words != nil {
			values[name] = strings.Join(value.words, ",")
		}
	}
	return values, nil
}

// configValue is a value of the file: the words of a list, or one word, or none (null).
type configValue struct {
	words  []string
	nested bool // it has something else in it
}

// UnmarshalYAML reads what stands at a field.
func (v *configValue) UnmarshalYAML(at ast.Node) error {
	switch n := at.(type) {
	case *ast.NullNode:
	case *ast.SequenceNode:
		v.words = []string{}
		for _, word := range n.Values {
			v.add(word)
		}
	default:
		v.add(at)
	}
	return nil
}

// add adds a word as it is written.
func (v *configValue) add(at ast.Node) {
	switch n := at.(type) {
	case *ast.StringNode:
		v.words = append(v.words, n.Value)
	case *ast.LiteralNode:
		v.words = append(v.words, n.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		v.words = append(v.words, n.GetToken().Value)
	default:
		v.nested = true
	}
}
