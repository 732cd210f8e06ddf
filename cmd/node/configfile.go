package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
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
	text, err := os.ReadFile(path)
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

// parseConfig reads the text of the file at path, which may name any of flags.
func parseConfig(path string, text []byte,
	flags map[string]*kong.Flag,
) (values map[string]any, err error) {
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%s:\n%s", path, yaml.FormatError(err, false, true))
	}
	for name, value := range values {
		if flags[name] == nil || name == "config" || name == "help" {
			return nil,
				fmt.Errorf("%s: %q is not a flag of serve; the fields of this file are the flags' "+
					"names without the dashes", path, name)
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		if slices.ContainsFunc(list, isCollection) {
			return nil, fmt.Errorf("%s: %q has fields or a list in it; this file has plain values "+
				"and lists of them, and a file with limits is for --limits", path, name)
		}
		if value != nil { // a flag reads text: of a number kong would take 2 for 2ns
			values[name] = joinWords(list)
		}
	}
	return values, nil
}

func isCollection(value any) bool {
	switch value.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

// joinWords makes of a YAML list what the command line takes: words with commas between.
func joinWords(list []any) string {
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = fmt.Sprint(w)
	}
	return strings.Join(words, ",")
}
