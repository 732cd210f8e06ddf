package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/rpc/audit"
)

// entriesSince are the entries that the audit log of r has besides the n first, the earliest first.
func entriesSince(r *running, n int) (list []audit.Entry) {
	all := r.files.audit.Last(1000)
	for i := len(all) - n - 1; i >= 0; i-- {
		list = append(list, all[i])
	}
	return list
}

// entriesText is what entries say.
func entriesText(list []audit.Entry) string {
	var lines []string
	for _, e := range list {
		lines = append(lines, fmt.Sprintf("%s %s: %v → %v", e.Action, filepath.Base(e.Target),
			e.Before, e.After))
	}
	return strings.Join(lines, "\n")
}

// Promise: files that are read again without a change leave no entry in the audit log, and each
// change leaves one that says what was before and what is after.
func TestReloadsAreRecordedIfSomethingChanged(t *testing.T) {
	dir := t.TempDir()
	limits, clients, keys := filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "clients"),
		filepath.Join(dir, "keys")
	shelf := filepath.Join(t.TempDir(), "shelf.yaml")
	const envoy = "domain: shelf\ndescriptors:\n" +
		"  - {key: user, rate_limit: {unit: hour, requests_per_unit: %d}}\n"
	const client = "clients:\n- {name: shop, token: shop-0123456789abcdef, check: {limits: " +
		"[login]}%s}\n"
	key := func(digit string) string { return strings.Repeat(digit, 64) + "\n" }
	putFile(t, limits, login(5))
	putFile(t, clients, fmt.Sprintf(client, ""))
	putFile(t, keys, key("1"))
	putFile(t, shelf, fmt.Sprintf(envoy, 7))
	r, _ := startNode(t, func(s *settings) {
		s.Limits, s.AuthTokenFile, s.GossipKeyFile, s.EnvoyConfig = limits, clients, keys,
			filepath.Dir(shelf)
	})
	began := len(r.files.audit.Last(1000))
	if began != 4 {
		t.Errorf("the start left %s", entriesText(entriesSince(r, 0)))
	}
	for range 2 {
		r.files.reload()
	}
	if more := entriesSince(r, began); len(more) > 0 {
		t.Errorf("files that are as before left %s", entriesText(more))
	}
	for _, change := range []struct{ path, text, action string }{
		{limits, login(6), "load limits"},
		{clients, fmt.Sprintf(client, ", refund: true"), "load clients"},
		{keys, key("1") + key("2"), "load gossip keys"},
		{shelf, fmt.Sprintf(envoy, 8), "load Envoy limits"}, // as many as before
	} {
		n := len(r.files.audit.Last(1000))
		putFile(t, change.path, change.text)
		eventually(t, change.action, func() error {
			more := entriesSince(r, n)
			if len(more) != 1 || more[0].Action != change.action ||
				fmt.Sprint(more[0].Before) == fmt.Sprint(more[0].After) {
				return fmt.Errorf("%d entries: %s", len(more), entriesText(more))
			}
			return nil
		})
	}
}

// Promise: a certificate and authorities that are read again are recorded, each once, by what tells
// them from those before; of files that were written anew and are the same there is nothing.
func TestReloadsOfTLSAreRecorded(t *testing.T) {
	a, other := newAuthority(t, "all"), newAuthority(t, "other")
	cert, key := a.issue("n1")
	r, _ := startNode(t, func(s *settings) {
		s.Name, s.HTTP, s.TLSCert, s.TLSKey = "n1", "127.0.0.1:0", cert, key
		s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA = cert, key, a.file
	})
	again, err := r.peerFiles().Caller() // as that which dials others
	if err != nil {
		t.Fatal(err)
	}
	look := func() {
		if _, err := r.metrics.Registry.Gather(); err != nil { // it shows when certificates end
			t.Fatal(err)
		}
		again()
	}
	both, err := os.ReadFile(a.file)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(other.file)
	if err != nil {
		t.Fatal(err)
	}
	began := len(r.files.audit.Last(1000))
	later := time.Now().Add(time.Minute)
	for _, path := range []string{cert, key, a.file} {
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(1100 * time.Millisecond) // they are looked at once a second
	look()
	time.Sleep(50 * time.Millisecond)
	if more := entriesSince(r, began); len(more) > 0 {
		t.Errorf("files that are as before left %s", entriesText(more))
	}
	a.issue("n1")
	putFile(t, a.file, string(both)+string(second))
	var more []audit.Entry
	eventually(t, "the files are read", func() error {
		look()
		if more = entriesSince(r, began); len(more) < 3 {
			return fmt.Errorf("%s", entriesText(more))
		}
		return nil
	})
	time.Sleep(1100 * time.Millisecond)
	look()
	time.Sleep(50 * time.Millisecond)
	more = entriesSince(r, began)
	seen := map[string]int{}
	for _, e := range more {
		seen[e.Action]++
		before, after := fmt.Sprint(e.Before), fmt.Sprint(e.After)
		path, wrong := cert, !strings.HasPrefix(before, "serial 2, SHA-256 ") ||
			!strings.HasPrefix(after, "serial 2, SHA-256 ") || before == after
		if e.Action == "load peer authorities" {
			path, wrong = a.file, before != "[]" || strings.Count(after, "SHA-256 ") != 1
		}
		if e.Target != path || e.Who != "this node" || wrong {
			t.Errorf("%+v", e)
		}
	}
	if len(more) != 3 || seen["load certificate"] != 1 || seen["load peer certificate"] != 1 ||
		seen["load peer authorities"] != 1 {
		t.Errorf("%s", entriesText(more))
	}
}
