package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionVerb prints what this binary was built from.
type versionVerb struct{}

func (versionVerb) Run(sh shell) error {
	_, err := fmt.Fprintf(sh.out, "penstock %s, %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, modified := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				modified = "+changes"
			}
		}
	}
	if commit == "" {
		return "devel"
	}
	return "devel-" + commit + modified
}
