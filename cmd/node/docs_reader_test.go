package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// reader types the commands of a document into a shell, and has further shells for commands that
// keep running.
type reader struct {
	t        *testing.T
	document string
	home     string // where the shell begins: a copy of what documents use of the repository
	notes    string // where commands and their output are kept
	isolated bool   // the shell has a network of its own
	in       io.Writer
	codes    *bufio.Scanner // a line with the exit code for each command
	count    int
	servers  []server // that run
}

type server struct {
	step step
	doors,
	out string
}

// prelude is what the reader's shell knows beforehand.
const prelude = `
set -m
servers=
if [ -n "$ISOLATED" ]; then
	ip link set lo up
	for i in 1 2 3; do ip addr add 10.0.0.$i/32 dev lo; done
fi
serve() { # FILE OUTPUT
	(. "$1") >"$2" 2>&1 </dev/null &
	servers="$servers $!"
}
await() { # DOOR OUTPUT FLAGS…: until the node is ready, or nothing runs any longer
	local door=$1 out=$2
	shift 2
	for i in $(seq 600); do
		if [ "$door" = demo ]; then
			grep -q Ctrl-C "$out" && return
		else
			"$BUILT" healthcheck --http "$door" "$@" && return
		fi
		for s in $servers; do kill -0 "$s" || return 1; done
		sleep 0.05
	done
	return 1
}
stop() { # as Ctrl-C does
	local s code=0
	for s in $servers; do kill -INT -- "-$s"; done
	for s in $servers; do wait "$s" || code=$?; done
	servers=
	return $code
}
`

// stand-ins for programs that a document names: go would build the program that is tested here once
// more, and redis-cli is not everywhere (examples/redis runs the real one).
const (
	standInGo = `#!/bin/sh
case $* in
"run ./cmd/node "*) shift 2; exec "$BUILT" "$@" ;;
"build -o bin/penstock ./cmd/node") mkdir -p bin && exec cp "$BUILT" bin/penstock ;;
esac
echo "go $*: not expected in a document" >&2
exit 99
`
	standInRedis = `#!/usr/bin/env bash
exec 3<>"/dev/tcp/127.0.0.1/$2"
shift 2
printf '*%d\r\n' $# >&3
for word; do printf '$%d\r\n%s\r\n' ${#word} "$word" >&3; done
read -r n <&3
n=${n//[^0-9]/}
for ((i = 1; i <= n; i++)); do
	read -r v <&3
	v=${v%$'\r'}
	echo "$i) (integer) ${v#:}"
done
`
)

func newReader(t *testing.T, root, document string) *reader {
	t.Helper()
	dir := t.TempDir()
	r := &reader{
		t: t, document: document, notes: filepath.Join(dir, "notes"),
		home: filepath.Join(dir, "penstock"),
	}
	bin := filepath.Join(dir, "stand-ins")
	for _, d := range []string{r.notes, bin, r.home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(r.home, "examples"),
		os.DirFS(filepath.Join(root, "examples"))); err != nil {
		t.Fatal(err)
	}
	standIns := map[string]string{"go": standInGo}
	if path, err := exec.LookPath("redis-cli"); err != nil {
		standIns["redis-cli"] = standInRedis
		// it writes for people, as the documents show it, if it is told to where its output is no
		// terminal
	} else {
		standIns["redis-cli"] = "#!/bin/sh\nexec " + path + " --no-raw \"$@\"\n"
	}
	for name, text := range standIns {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := os.Getenv("PATH")
	if document == "README.md" { // its reader has yet to build the program
		path = strings.ReplaceAll(path, filepath.Dir(built)+string(os.PathListSeparator), "")
	}
	at := "." // readers of examples begin beside them, all others at the root
	if strings.HasPrefix(document, "examples/") {
		at = filepath.Dir(document)
	}
	r.start(filepath.Join(r.home, at), bin+":"+path)
	return r
}

// start begins the shell, in a network of its own if that is possible.
func (r *reader) start(at, path string) {
	r.t.Helper()
	shell := []string{"bash", "--noprofile", "--norc"}
	if exec.Command("unshare", "-rn", "ip", "link", "set", "lo", "up").Run() == nil {
		r.isolated, shell = true, append([]string{"unshare", "-rn"}, shell...)
	} else {
		for port := 7946; port <= 7970; port++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				r.t.Skipf("no network can be made here, and the default ports are in use: %v", err)
			}
			l.Close()
		}
	}
	cmd := exec.Command(shell[0], shell[1:]...)
	cmd.Dir = at
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PENSTOCK_") && !strings.HasPrefix(v, "PATH=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+path, "BUILT="+built, "COLUMNS=80")
	if r.isolated {
		cmd.Env = append(cmd.Env, "ISOLATED=1")
	}
	codes, tell, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{tell}
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	tell.Close()
	r.in, r.codes = in, bufio.NewScanner(codes)
	r.t.Cleanup(func() {
		fmt.Fprintln(r.in, "stop; exit")
		in.Close()
		cmd.Wait()
		codes.Close()
	})
	if out, code := r.run(prelude); code != 0 {
		r.t.Fatalf("the shell could not be made ready: exit code %d\n%s", code, out)
	}
}

// run types a command, and returns what it prints. Directory and variables stay for the next one.
func (r *reader) run(command string) (out string, code int) {
	r.t.Helper()
	path, output := r.note(command)
	fmt.Fprintf(r.in, ". %s >%s 2>&1 </dev/null 3>&-; echo $? >&3\n", path, output)
	done := make(chan error, 1)
	go func() {
		if !r.codes.Scan() {
			done <- fmt.Errorf("the shell has ended: %v", r.codes.Err())
			return
		}
		_, err := fmt.Sscan(r.codes.Text(), &code)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			r.t.Fatalf("%s: %v\n%s", r.document, err, command)
		}
	case <-time.After(2 * time.Minute):
		r.t.Fatalf("%s: this does not end:\n%s%s", r.document, command, read(r.t, output))
	}
	return read(r.t, output), code
}

func (r *reader) note(command string) (path, output string) {
	r.count++
	path = filepath.Join(r.notes, fmt.Sprint(r.count))
	if err := os.WriteFile(path, []byte(command), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path, path + ".out"
}

func read(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// save writes a file that the document shows.
func (r *reader) save(s step) {
	if _, code := r.run("cat >" + s.file + " <<'END OF FILE'\n" + s.shown +
		"END OF FILE\n"); code != 0 {
		r.t.Fatalf("%s:%d: %s could not be written", r.document, s.line, s.file)
	}
}

// ofTLS are the flags by which a node is asked as by itself.
var ofTLS = regexp.MustCompile(`--tls-(?:cert|key) \S+`)

var machine = regexp.MustCompile(`--gossip 10\.0\.0\.([0-9])`)

// serve starts what goes on running. A command for another machine gets doors there, since all
// addresses are here. It reports whether that is possible.
func (r *reader) serve(s step, verb string) bool {
	r.t.Helper()
	doors, command := "127.0.0.1:7949", strings.TrimRight(strings.TrimSpace(s.command), "& ")+"\n"
	if m := machine.FindStringSubmatch(command); m != nil {
		if !r.isolated {
			return false
		}
		host := "127.0.0." + m[1]
		doors = host + ":7949"
		command = fmt.Sprintf("export PENSTOCK_GRPC=%s:7948 PENSTOCK_HTTP=%[1]s:7949 "+
			"PENSTOCK_REDIS=%[1]s:7950\n%s", host, command)
	}
	if verb == "demo" {
		doors = verb
	}
	path, output := r.note(command)
	r.servers = append(r.servers, server{s, doors, output})
	if out, code := r.run("serve " + path + " " + output); code != 0 {
		r.t.Fatalf("%s:%d: %s", r.document, s.line, out)
	}
	return true
}

// await waits until all that was started is ready.
func (r *reader) await(step) {
	r.t.Helper()
	for _, s := range r.servers {
		if out, code := r.run(strings.Join(append([]string{"await", s.doors, s.out},
			ofTLS.FindAllString(s.step.command, -1)...), " ")); code != 0 {
			r.t.Fatalf("%s:%d: not ready: %s\n%s%s", r.document, s.step.line, s.step.command,
				read(r.t, s.out), out)
		}
	}
}

// stop ends what runs, as Ctrl-C does, before s.
func (r *reader) stop(s step) {
	r.t.Helper()
	if _, code := r.run("stop"); code != 0 {
		for _, server := range r.servers {
			r.t.Errorf("%s:%d: exit code %d after Ctrl-C: %s%s", r.document, s.line, code,
				server.step.command, read(r.t, server.out))
		}
	}
	r.servers = nil
}
