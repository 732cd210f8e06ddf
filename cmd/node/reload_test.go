package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/limiter/policy"
)

// reloaded waits until the files that are there are in force, or not.
func reloaded(t *testing.T, r *running, want bool, what string) {
	t.Helper()
	eventually(t, what, func() error {
		if ok, _ := r.files.lastReload(); ok != want {
			return fmt.Errorf("penstock_config_last_reload_successful is %v", ok)
		}
		return nil
	})
}

// Promise: a role that names no limit is refused at start and at a reload, also if it is a reload
// of limits that takes the limit away; and it is in force as soon as the limit is there, wherever
// its file lies.
func TestRolesFollowLimits(t *testing.T) {
	const shop = "clients:\n- {name: shop, token: shop-0123456789abcdef, check: {limits: [%s]}}\n"
	const pay = "  - {name: pay, algorithm: gcra, limit: 10, per: 1m}\n"
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	putFile(t, limits, login(5))
	roles := write(t, fmt.Sprintf(shop, "login"))
	r, said := startNode(t, func(s *settings) {
		s.HTTP, s.Limits, s.AuthTokenFile = "127.0.0.1:0", limits, roles
	})
	r.waitReady(t)
	putFile(t, roles, fmt.Sprintf(shop, "login, pay"))
	reloaded(t, r, false, "a role names a limit that is not there")
	putFile(t, limits, login(5)+pay)
	reloaded(t, r, true, "the limit is there")
	ask, err := http.NewRequest("GET",
		"http://"+r.doors.address("--http")+"/v1/check?limit=pay&key=k", nil)
	if err != nil {
		t.Fatal(err)
	}
	ask.Header.Set("Authorization", "Bearer shop-0123456789abcdef")
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("the role is not in force: %s", answer.Status)
	}
	putFile(t, limits, login(5))
	reloaded(t, r, false, "a limit that a role names is taken away")
	if !strings.Contains(said.String(), "no file of limits has the limit") {
		t.Errorf("the log does not say why:\n%s", said)
	}
}

// Promise: the audit log says which clients a change of their file has added, changed and removed.
func TestChangesOfClientsAreRecorded(t *testing.T) {
	const one = "- {name: shop, token: shop-0123456789abcdef, check: {limits: [login]}%s}\n"
	const two = "- {name: ops, token: ops-0123456789abcdef, admin: read}\n"
	roles := write(t, "clients:\n"+fmt.Sprintf(one, "")+two)
	r, _ := startNode(t, func(s *settings) { s.AuthTokenFile = roles })
	putFile(t, roles, "clients:\n"+fmt.Sprintf(one, ", refund: true"))
	eventually(t, "the change is recorded", func() error {
		last := r.files.audit.Last(1)[0]
		before, after := fmt.Sprint(last.Before), fmt.Sprint(last.After)
		if last.Action != "load clients" || strings.Count(before, "(token ") != 2 ||
			!strings.Contains(before, "ops") || !strings.Contains(before, ": admin: read") ||
			strings.Count(after, "(token ") != 1 || !strings.Contains(after,
			`: check, refund, limits ["login"]`) || strings.Contains(before+after, "0123456789") {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
}

// Promise: a private key that other users of the machine can read is told of, of both certificates.
func TestKeysThatAreReadableAreToldOf(t *testing.T) {
	a := newAuthority(t, "all")
	cert, key := a.issue("n1")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	_, said := startNode(t, func(s *settings) {
		s.Name, s.TLSCert, s.TLSKey = "n1", cert, key
		s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA = cert, key, a.file
	})
	for _, flag := range []string{"--tls-key", "--peer-tls-key"} {
		if n := strings.Count(said.String(), "flag="+flag+" "); n != 1 {
			t.Errorf("%s is told of %d times:\n%s", flag, n, said)
		}
	}
}

// Promise: what is wrong with files at the start is said once, and nothing is said to be in force.
func TestFaultsAtTheStartAreSaidOnce(t *testing.T) {
	said := new(logBook)
	_, err := policy.Watch(write(t, "limits: 7\n"), slog.New(slog.NewTextHandler(said, nil)),
		func(*policy.Set) {})
	if err == nil || said.String() != "" {
		t.Errorf("error %v, and the log has %s", err, said)
	}
}

// Promise: however many SIGHUPs come, and however long files take to be read again, a SIGTERM stops
// the node.
func TestStopsDuringAStormOfReloads(t *testing.T) {
	var many strings.Builder
	many.WriteString("limits:\n")
	for i := range 5000 {
		fmt.Fprintf(&many, "  - {name: limit-%d, algorithm: gcra, limit: 10, per: 1m}\n", i)
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	putFile(t, file, many.String())
	p := serveProcess(t, "n1", "--limits", file)
	for range 40 {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // so that the process sees more than one
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exitCode(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Promise: after the audit log was renamed, a SIGHUP has it go on in a new file, also of a node
// that is given no other file.
func TestAuditLogIsRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	p := serveProcess(t, "n1", "--audit-log", path)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is there again", func() error {
		_, err := os.Stat(path)
		return err
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exitCode(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
