package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// Promise: reset --prefix forgets all keys of one limit that begin so, on all nodes, and no
// others; credit gives back what it says.
func TestResetOfAPrefixAndCredit(t *testing.T) {
	t.Parallel()
	nodes := serveCluster(t, 3)
	for _, limit := range []string{"demo", "big"} {
		for _, prefix := range []string{"user:", "team:"} {
			for i := range 40 {
				status, body, err := nodes[i%3].call(
					"GET",
					fmt.Sprintf("/v1/check?limit=%s&key=%s%d&cost=4", limit, prefix, i),
				)
				if err != nil || status != 200 {
					t.Fatalf("%d %s %v", status, body, err)
				}
			}
		}
	}
	penstock := func(args ...string) (string, int) {
		out, err := exec.Command(built, append(args, "--addr", nodes[0].grpc)...).CombinedOutput()
		return string(out), exitOf(err)
	}
	if out, code := penstock("reset", "--prefix", "user:", "--limit", "demo"); code != 0 ||
		out != "reset 40 keys of demo that begin with \"user:\"\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	for i := range 40 {
		for page, left := range map[string]int{
			"limit=demo&key=user:%d": 5, "limit=demo&key=team:%d": 1, "limit=big&key=user:%d": 9996,
		} {
			_, body, err := nodes[i%3].call("GET", "/v1/peek?"+fmt.Sprintf(page, i))
			if err != nil || !strings.Contains(body, fmt.Sprintf(`"remaining":%d,`, left)) {
				t.Errorf(page+": %s %v; want %d left", i, body, err, left)
			}
		}
	}
	if out, code := penstock("reset", "demo", "--prefix", "team:", "-o", "json"); code != 0 ||
		!strings.Contains(out, `"reset":40`) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := penstock("reset", "--prefix", "user:39", "--limit", "big"); code != 0 ||
		out != "reset 1 key of big that begins with \"user:39\"\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := penstock("credit", "big", "user:1", "3"); code != 0 ||
		!strings.Contains(out, "9,999") && !strings.Contains(out, "9999") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"reset", "--prefix", "user:"}, "limit: is missing"},
		{[]string{"reset", "demo"}, "key: is empty; give a key, or --prefix"},
		{[]string{"reset", "demo", "k", "--prefix", "user:"}, "--prefix: a key is given too"},
		{
			[]string{"reset", "demo", "k", "--limit", "demo"},
			"--limit: the limit is the first argument already",
		},
		{[]string{"credit", "demo", "k", "0"}, "units: is 0; give 1 or more"},
		{[]string{"credit", "none", "k", "1"}, `no limit is named "none"`},
	} {
		if out, code := penstock(row.args...); code != 1 || !strings.Contains(out, row.want) {
			t.Errorf("%v: exit code %d: %s; want %q", row.args, code, out, row.want)
		}
	}
}
