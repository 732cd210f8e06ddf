package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// stamped is the version that a build without the repository is given, as in an image:
//
//	go build -ldflags "-X main.stamped=v1.2.3" ./cmd/node
var stamped string

// versionVerb prints the version of this binary.
type versionVerb struct{ output }

func (v versionVerb) Run(sh shell) error {
	return v.print(sh.out, struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{version(), runtime.Version(), runtime.GOOS, runtime.GOARCH}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, versionLine())
		return err
	})
}

// versionLine is what version and --version print.
func versionLine() string {
	return fmt.Sprintf("penstock %s, %s %s/%s", version(), runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
}

// version is what the build was given, else the module's version, else the commit it was built
// from.
func version() string {
	if stamped != "" {
		return stamped
	}
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
