// Release makes what a release consists of: a static binary for each system, a list of what is in
// it, and checksums. Two runs on the same sources make the same bytes.
//
//	go run -C tools ./release -version v1.2.3                    all of it, in dist/
//	go run -C tools ./release -version v1.2.3 -only linux/amd64  one system
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// systems are what binaries are made for.
var systems = []string{
	"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64",
}

func main() {
	version := flag.String("version", "", "what penstock version says, as in v1.2.3")
	root := flag.String("root", "..", "the sources")
	out := flag.String("out", "../dist", "where the release goes")
	only := flag.String("only", "", "one system, as in linux/amd64; default: all six")
	flag.Parse()
	if err := release(*root, *out, *version, *only); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(root, out, version, only string) error {
	if version == "" {
		return fmt.Errorf("-version: is missing; give the version, as in v1.2.3")
	}
	made := systems
	if only != "" {
		if made = []string{only}; !slices.Contains(systems, only) {
			return fmt.Errorf("-only %s: there is: %s", only, strings.Join(systems, ", "))
		}
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var files []string
	for _, system := range made {
		name, err := build(root, out, version, system)
		if err != nil {
			return err
		}
		info, err := buildinfo.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		text, err := bill(info, version, system)
		if err != nil {
			return err
		}
		list := strings.TrimSuffix(name, ".exe") + ".cdx.json"
		if err := os.WriteFile(filepath.Join(out, list), text, 0o644); err != nil {
			return err
		}
		files = append(files, name, list)
	}
	return sums(out, files)
}

// build makes the binary for a system, and returns the name of its file.
func build(root, out, version, system string) (name string, err error) {
	goos, goarch, _ := strings.Cut(system, "/")
	name = fmt.Sprintf("penstock_%s_%s_%s", version, goos, goarch)
	if goos == "windows" {
		name += ".exe"
	}
	// -trimpath and no VCS stamp: neither the place nor the state of the sources is in the binary.
	// grpcnotrace leaves out pages of gRPC that no door shows.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace",
		"-ldflags=-s -w -X main.stamped="+version, "-o", filepath.Join(out, name), "./cmd/node")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch,
		"GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", system, err)
	}
	fmt.Println(name)
	return name, nil
}

// sums writes the file that sha256sum -c reads.
func sums(out string, files []string) error {
	var b strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(text), name)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
