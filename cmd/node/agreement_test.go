package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// page is what a node answers to GET path.
func page(t *testing.T, r *running, path string) string {
	t.Helper()
	answer, err := http.Get("http://" + r.doors.address("--http") + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// says is nil if all of the texts are part of what a node answers to GET path.
func says(t *testing.T, r *running, path string, texts ...string) error {
	t.Helper()
	body := page(t, r, path)
	for _, text := range texts {
		if !strings.Contains(body, text) {
			return fmt.Errorf("%s of %s lacks %q:\n%s", path, r.member.ID, text, body)
		}
	}
	return nil
}

func login(limit int) string {
	return fmt.Sprintf("limits:\n  - {name: login, algorithm: fixed_window, limit: %d, per: 24h}\n",
		limit)
}

func putFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// twoNodes are a cluster of two nodes with files of limits of their own, which are returned too.
func twoNodes(t *testing.T, texts ...string) (nodes []*running, books []*logBook, files []string) {
	t.Helper()
	var seeds []string
	for i, text := range texts {
		file := filepath.Join(t.TempDir(), "limits.yaml")
		putFile(t, file, text)
		r, book := startNode(t, func(s *settings) {
			s.Name, s.Limits, s.Join, s.HTTP = fmt.Sprint("n", i), file, seeds, "127.0.0.1:0"
		})
		r.waitReady(t)
		nodes, books, files = append(nodes, r), append(books, book), append(files, file)
		seeds = []string{r.gossip.Addr()}
	}
	eventually(t, "all nodes see all", func() error {
		for _, r := range nodes {
			if v := r.node.View(); v.Active() != len(nodes) {
				return fmt.Errorf("%s sees %d", r.member.ID, v.Active())
			}
		}
		return nil
	})
	return nodes, books, files
}

// Promise: nodes with different files show it everywhere, once in the log, until the
// files agree again. What files say counts, and not how they say it.
func TestDifferentLimitsAreShown(t *testing.T) {
	nodes, books, files := twoNodes(t, login(5), "# other words\n"+strings.Replace(login(10),
		"fixed_window", "\"fixed_window\"", 1))
	for i, r := range nodes {
		other := nodes[1-i].member.ID
		disagreeing := fmt.Sprintf(`"limits_disagreeing":[%q]`, other)
		hash := fmt.Sprintf("%016x", r.node.LimitsHash())
		eventually(t, "the disagreement is shown", func() error {
			for path, texts := range map[string][]string{
				"/v1/members": {
					disagreeing, hash,
					fmt.Sprintf("%016x", nodes[1-i].node.LimitsHash()),
				},
				"/v1/status": {disagreeing, hash},
				"/metrics": {
					"penstock_limits_disagreeing_members 1",
					`penstock_config_info{hash="` + hash + `"} 1`,
				},
			} {
				if err := says(t, r, path, texts...); err != nil {
					return err
				}
			}
			return nil
		})
		out, _ := runVerb(t, "members", "--addr", r.doors.address("--grpc"))
		if !strings.Contains(out, "DIFFERENT LIMITS: the files of "+other) {
			t.Errorf("members says nothing of it:\n%s", out)
		}
		out, _ = runVerb(t, "members", "-o", "json", "--addr", r.doors.address("--grpc"))
		var answer struct {
			Disagreeing []string `json:"limits_disagreeing"`
		}
		if err := json.Unmarshal([]byte(out), &answer); err != nil ||
			len(answer.Disagreeing) != 1 || answer.Disagreeing[0] != other {
			t.Errorf("members -o json: %v\n%s", err, out)
		}
		if n := strings.Count(books[i].String(), "nodes have different limits"); n != 1 {
			t.Errorf("%d warnings at %s, want one:\n%s", n, r.member.ID, books[i])
		}
	}
	for k := range 8 {
		key, admitted, owner := fmt.Sprint("key-", k), 0, ""
		for i := range 24 {
			var d struct {
				Allowed bool
				Owner   string
			}
			if err := json.Unmarshal([]byte(page(t, nodes[i%2], "/v1/check?limit=login&key="+key)),
				&d); err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				admitted, owner = admitted+1, d.Owner
			}
		}
		if want := map[string]int{"n0": 5, "n1": 10}[owner]; admitted != want {
			t.Errorf("%d of %s are admitted, and its owner %s has a limit of %d", admitted, key,
				owner, want)
		}
	}
	putFile(t, files[1], "rules: []\n"+login(5)+"# the same\n")
	for i, r := range nodes {
		eventually(t, "they agree again", func() error {
			if err := says(t, r, "/v1/members", `"limits_disagreeing":[]`); err != nil {
				return err
			}
			if !strings.Contains(books[i].String(), "all nodes have the same limits again") {
				return fmt.Errorf("%s has not said so", r.member.ID)
			}
			return says(t, r, "/metrics", "penstock_limits_disagreeing_members 0")
		})
	}
}

// Promise: an emptied file of limits ends a start, and later deletes nothing; metrics tell that it
// was not taken over.
func TestAnEmptiedFileOfLimitsIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	putFile(t, file, "")
	s, err := selfSettings(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Limits, s.Cluster, s.Memory, s.Role, s.Redis = file, "test", 8<<20, "member", "off"
	if r, err := start(t.Context(), s, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "says nothing about limits") {
		if r != nil {
			r.stop(t.Context(), 0)
		}
		t.Fatalf("started with an empty file: %v", err)
	}
	out, code := runVerb(t, "policy", "validate", file)
	if code != 1 || !strings.Contains(out, "limits: []") {
		t.Errorf("policy validate exits %d and says %s", code, out)
	}

	putFile(t, file, login(5))
	r, book := startNode(t, func(s *settings) { s.Limits, s.HTTP = file, "127.0.0.1:0" })
	r.waitReady(t)
	if err := says(t, r, "/metrics", "penstock_config_last_reload_successful 1",
		"penstock_config_last_reload_success_timestamp_seconds 1."); err != nil {
		t.Error(err)
	}
	putFile(t, file, "# gone\n")
	eventually(t, "the fault is seen",
		func() error { return says(t, r, "/metrics", "penstock_config_last_reload_successful 0") })
	if err := says(t, r, "/v1/check?limit=login&key=a", `"allowed":true`); err != nil {
		t.Error(err)
	}
	if !strings.Contains(book.String(), "limits are not loaded; those in force stay") {
		t.Errorf("nothing is logged:\n%s", book)
	}
	putFile(t, file, "limits: []\n")
	eventually(t, "there are none on purpose", func() error {
		if err := says(t, r, "/metrics", "penstock_config_last_reload_successful 1"); err != nil {
			return err
		}
		return says(t, r, "/v1/check?limit=login&key=a", `"status":404`)
	})
}

// runVerb runs penstock in this process, and returns all that it writes and its exit code.
func runVerb(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var b bytes.Buffer
	code = run(args, shell{out: &b, err: &b})
	return b.String(), code
}
