package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// built is penstock, built once for all tests that run it as users do.
var built string

func TestMain(m *testing.M) { os.Exit(withBinary(m)) }

func withBinary(m *testing.M) int {
	// Fuzz targets run no program, and workers of a fuzzer are started again and again.
	is := func(name, value string) bool { return flag.Lookup("test."+name).Value.String() == value }
	if flag.Parse(); is("fuzzworker", "true") || !is("fuzz", "") && is("run", "^$") {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "penstock-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = filepath.Join(dir, "penstock")
	if out, err := exec.Command("go", "build", "-o", built, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return m.Run()
}

// The scripts are what a user types, with exit codes and words. Nodes in them listen on sockets in
// the script's directory, so that no two scripts meet.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		// for a node that runs although its flags are wrong
		Deadline: time.Now().Add(10 * time.Minute),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready":  waitReady,
			"occupy": occupy,
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("COLUMNS", "80")
			return nil
		},
	})
}

// waitReady waits until the node behind the HTTP door $1 (host:port or unix:///path) is ready.
func waitReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready DOOR")
	}
	var err error
	for range 200 {
		if err = ts.Exec("penstock", "healthcheck", "--http", args[0]); err == nil {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	ts.Fatalf("%s is not ready: %v", args[0], err)
}

// occupy takes a free port for as long as the script runs, and sets $1 to its address.
func occupy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: occupy NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

// A build that cannot see its repository, as in an image, is told its version; version and
// --version say it.
func TestStampedVersion(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "penstock")
	build := exec.Command("go", "build", "-buildvcs=false",
		"-ldflags=-X main.stamped=v1.2.3-4-gabc", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, word := range []string{"version", "--version"} {
		out, err := exec.Command(binary, word).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "penstock v1.2.3-4-gabc, go1.") {
			t.Errorf("%s: %v, %s", word, err, out)
		}
	}
	out, err := exec.Command(binary, "version", "-o", "json").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), `{"version":"v1.2.3-4-gabc","go":"go1.`) {
		t.Errorf("version -o json: %v, %s", err, out)
	}
}
