package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mostBytes bounds a binary: an image has nothing else in it.
const mostBytes = 30 << 20

// Two copies of the sources in two places make the same files, byte for byte; the binary says its
// version, has a bounded size, and the bill of materials names every module that is linked into it.
func TestReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program twice")
	}
	const system = "linux/amd64"
	var names [2][]string
	var dirs [2]string
	for i := range dirs {
		sources := filepath.Join(t.TempDir(), strings.Repeat("deeper/", i)+"sources")
		copySources(t, sources)
		dirs[i] = filepath.Join(t.TempDir(), "dist")
		if err := release(sources, dirs[i], "v0.0.1-test", system); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dirs[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names[i] = append(names[i], e.Name())
		}
	}
	want := "SHA256SUMS penstock_v0.0.1-test_linux_amd64 penstock_v0.0.1-test_linux_amd64.cdx.json"
	if got := strings.Join(names[0], " "); got != want {
		t.Fatalf("a release of %s; want %s", got, want)
	}
	for _, name := range names[0] {
		a, b := read(t, dirs[0], name), read(t, dirs[1], name)
		if a != b {
			t.Errorf("%s: two builds of the same sources differ", name)
		}
	}
	check := exec.Command("sha256sum", "-c", "SHA256SUMS")
	check.Dir = dirs[0]
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	binary := filepath.Join(dirs[0], names[0][1])
	if info, err := os.Stat(binary); err != nil || info.Size() > mostBytes {
		t.Errorf("the binary has %d bytes, more than %d (%v)", info.Size(), mostBytes, err)
	}
	if out, err := exec.Command(binary, "version").CombinedOutput(); err == nil {
		if !strings.HasPrefix(string(out), "penstock v0.0.1-test, ") {
			t.Errorf("penstock version: %s", out)
		}
	} // else this machine is another system
	billed(t, binary, read(t, dirs[0], names[0][2]))
}

// billed compares the bill of materials with what the binary says of itself.
func billed(t *testing.T, binary, text string) {
	t.Helper()
	var b struct {
		BOMFormat  string
		Components []component
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil || b.BOMFormat != "CycloneDX" {
		t.Fatalf("the bill: %v, format %q", err, b.BOMFormat)
	}
	listed := map[string]bool{}
	for _, c := range b.Components {
		listed[c.Name+"@"+c.Version] = true
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil || len(info.Deps) == 0 {
		t.Fatal(err, len(info.Deps))
	}
	for _, m := range info.Deps {
		if !listed[m.Path+"@"+m.Version] {
			t.Errorf("the bill lacks %s %s", m.Path, m.Version)
		}
	}
	if !listed["stdlib@"+strings.TrimPrefix(info.GoVersion, "go")] {
		t.Errorf("the bill lacks the standard library of %s", info.GoVersion)
	}
}

// A version is asked for, and a system that there is none for is named with those there are.
func TestMistakes(t *testing.T) {
	if err := release("../..", t.TempDir(), "", ""); err == nil {
		t.Error("a release without a version")
	}
	err := release("../..", t.TempDir(), "v1", "plan9/amd64")
	if err == nil || !strings.Contains(err.Error(), "linux/arm64") {
		t.Errorf("plan9: %v; want the systems that there are", err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// copySources copies what the program is built from.
func copySources(t *testing.T, to string) {
	t.Helper()
	for _, name := range []string{
		"go.mod", "go.sum", "cluster", "cmd", "embedded", "limiter", "proto", "ring", "rpc", "sim",
		"textfile",
	} {
		from := filepath.Join("..", "..", name)
		info, err := os.Stat(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			err = os.CopyFS(filepath.Join(to, name), os.DirFS(from))
		} else {
			text := read(t, filepath.Dir(from), name)
			err = os.WriteFile(filepath.Join(to, name), []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
