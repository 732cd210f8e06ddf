package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/rpc/access"
)

// askAs is the status and the body of a page for a client with a token.
func askAs(t *testing.T, r *running, token, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequest("GET", "http://"+r.address("--http")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// Promise: a file of clients is reloaded while the node runs. A broken one never replaces a good
// one, which the log and a metric say, and no token is in the log.
func TestFileOfClientsIsReloaded(t *testing.T) {
	const shop, next, ops = "shop-secret-0123456789", "next-secret-0123456789", "ops-secret-0123456789"
	entry := func(name, token, rights string) string {
		return fmt.Sprintf("- {name: %s, token: %s, %s}\n", name, token, rights)
	}
	root := entry("ops", ops, "admin: read, metrics: true")
	file := filepath.Join(t.TempDir(), "clients.yaml")
	putFile(t, file, "clients:\n"+root+entry("shop", shop, "check: {limits: [login]}"))
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(t.TempDir(), "audit.jsonl")
	r, book := startNode(t, func(s *settings) {
		s.Limits, s.AuthTokenFile, s.AuditLog, s.HTTP = write(t, login(5)), file, record, "127.0.0.1:0"
	})
	r.waitReady(t)
	status := func(token, path string, want int) error {
		if got, body := askAs(t, r, token, path); got != want {
			return fmt.Errorf("%s answers %d, want %d: %s", path, got, want, body)
		}
		return nil
	}
	reloaded := func(want string) error {
		if _, body := askAs(t, r, ops, "/metrics"); !strings.Contains(body, "penstock_config_last_reload_successful "+want+"\n") {
			return fmt.Errorf("the metric is not %s", want)
		}
		return nil
	}
	const check, read = "/v1/check?limit=login&key=k", "/v1/members"
	for _, err := range []error{
		status(shop, check, 200), status(shop, read, 403), status(ops, read, 200), status(ops, check, 403),
		status(next, check, 401), reloaded("1"),
	} {
		if err != nil {
			t.Error(err)
		}
	}

	putFile(t, file, "clients:\n"+root+entry("shop", shop, "check: {}"))
	eventually(t, "the metric says that the file is broken", func() error { return reloaded("0") })
	if err := status(shop, check, 200); err != nil {
		t.Error("a broken file replaced a good one:", err)
	}
	if text := book.String(); !strings.Contains(text, "clients are not loaded; those in force stay") || !strings.Contains(text, "names no limit") {
		t.Errorf("nothing is logged:\n%s", text)
	}

	putFile(t, file, "clients:\n"+root+entry("shop", next, "check: {limits: [login]}"))
	eventually(t, "the new token is in force", func() error { return status(next, check, 200) })
	if err := status(shop, check, 401); err != nil {
		t.Error("the old token is still good:", err)
	}
	if err := reloaded("1"); err != nil {
		t.Error(err)
	}
	changes, err := os.ReadFile(record)
	if n := strings.Count(string(changes), `"action":"load clients"`); err != nil || n != 2 {
		t.Errorf("%d loads are recorded, want 2: %v\n%s", n, err, changes)
	}
	for _, secret := range []string{shop, next, ops} {
		if strings.Contains(book.String(), secret) || strings.Contains(string(changes), secret) {
			t.Errorf("a log shows a token:\n%s\n%s", book, changes)
		}
	}
}

// Promise: a file of clients with a fault ends the start, with a text that says what to do.
func TestBrokenFileOfClientsEndsTheStart(t *testing.T) {
	const token = "secret-0123456789abcdef"
	for _, row := range []struct {
		text, want string
		mode       os.FileMode
	}{
		{"", "the first line is empty", 0o600},
		{token + "\n", "chmod 600", 0o646},
		{"clients:\n- {name: shop, token: " + token + ", metrics: true}\n", "chmod 600", 0o644},
		{"clients:\n- {name: shop, token: " + token + ", check: {}}\n", "names no limit", 0o600},
		{"clients:\n- {name: shop, certificate: shop.example, metrics: true}\n", "--tls-ca, which verifies them, is not given", 0o600},
	} {
		file := write(t, row.text)
		if err := os.Chmod(file, row.mode); err != nil {
			t.Fatal(err)
		}
		s, err := selfSettings(0, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Cluster, s.Memory, s.Role, s.Redis, s.AuthTokenFile = "test", 8<<20, "member", "off", file
		r, err := start(t.Context(), s, slog.New(slog.DiscardHandler))
		if err == nil {
			r.stop(t.Context(), 0)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "--auth-token-file: "+file) || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), token) {
			t.Errorf("%q: started, or ended with %v; want %q", row.text, err, row.want)
		}
	}
}

// Promise: keygen --token draws a token, and an entry that the nodes accept and that has only its
// hash.
func TestKeygenToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.token")
	out, code := runVerb(t, "keygen", "--token", "shop", "--out", file)
	entry, _, _ := strings.Cut(out, "\n")
	text, err := os.ReadFile(file)
	if code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	token, err := access.ParseToken(text)
	if err != nil || strings.Contains(out, token) {
		t.Fatalf("token %q, %v, said: %s", token, err, out)
	}
	set, plain, err := access.Parse([]byte("clients:\n" + entry))
	if err != nil || plain {
		t.Fatalf("entry %q, with a token %v: %v", entry, plain, err)
	}
	if ticket := access.New(set).Token([]byte(token)); ticket == nil || !strings.HasPrefix(ticket.Who(), "shop ") {
		t.Errorf("the token is that of %v", ticket)
	}
	if out, code := runVerb(t, "keygen", "--token", "two words"); code != 1 || !strings.Contains(out, "name: give") {
		t.Errorf("a name with a blank: exit code %d: %s", code, out)
	}
}
