package main

import (
	"errors"
	"reflect"

	"github.com/alecthomas/kong"
)

// readPath reads what flags and arguments of the type path are given. kong's own mapper takes an
// empty text for the current directory: then serve --data-dir "$DIR" would keep its counters in
// whatever directory it was started in when DIR is not set.
func readPath(ctx *kong.DecodeContext, target reflect.Value) error {
	var path string
	if err := ctx.Scan.PopValueInto("path", &path); err != nil {
		return err
	}
	switch {
	case path == "" && ctx.Value.Flag == nil:
		return errors.New("is empty; give a path")
	case path == "":
		return errors.New("is empty; give a path, or omit the flag")
	case path != "-": // the standard input
		path = kong.ExpandPath(path)
	}
	target.SetString(path)
	return nil
}
