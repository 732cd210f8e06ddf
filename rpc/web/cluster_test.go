package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/rpc/history"
	"penstock/rpc/overview"
	"penstock/rpc/rpctest"
)

// overviewOf is a node that is alone, with its page and what that remembers.
func overviewOf(t *testing.T, specs ...limiter.Spec) http.Handler {
	t.Helper()
	node, ended := rpctest.Alone(t, specs...), make(chan struct{})
	t.Cleanup(func() { close(ended) })
	o := overview.New(overview.Config{
		Node: node, Recorder: history.NewRecorder(node, 0, time.Now), Started: time.Now(),
		Ended: ended,
	})
	return New(Config{Node: node, Admin: true, Overview: o})
}

// Promise: the page counts what is within a limit, what is denied, and what is let through beyond
// it, however the limit lets it through; and knows a key's answers and the busiest keys.
func TestOverviewCounts(t *testing.T) {
	one := func(name string, change func(*limiter.Spec)) limiter.Spec {
		s := limiter.Spec{Name: name, Algorithm: limiter.FixedWindow, Limit: 1, Per: time.Hour}
		change(&s)
		return s
	}
	h := overviewOf(t,
		one("denies", func(*limiter.Spec) {}),
		one("tries", func(s *limiter.Spec) { s.DryRun = true }),
		one("tags", func(s *limiter.Spec) { s.OnDeny = limiter.DenyTag }),
		one("later", func(s *limiter.Spec) { s.OnDeny = limiter.DenyDeprioritize }),
	)
	for _, limit := range []string{"denies", "tries", "tags", "later"} {
		for range 4 {
			rpctest.Page(h, "GET", "/v1/check?key=k&limit="+limit, "")
		}
	}
	read := func(page string, into any) {
		t.Helper()
		if _, text := rpctest.Page(h, "GET", page, ""); json.Unmarshal([]byte(text), into) != nil {
			t.Fatalf("%s: %s", page, text)
		}
	}
	var limits struct {
		Limits []struct {
			Name                    string
			Allowed, Denied, Beyond int
			Heavy                   []history.Heavy
		}
	}
	read("/v1/cluster/limits", &limits)
	var got []string
	for _, l := range limits.Limits {
		got = append(got, fmt.Sprint(l.Name, " ", l.Allowed, l.Denied, l.Beyond, l.Heavy[0].Checks))
	}
	want := "denies 1 3 0 4, later 1 0 3 4, tags 1 0 3 4, tries 1 0 3 4"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s; want %s", strings.Join(got, ", "), want)
	}
	var key struct{ Answers []history.Answer }
	read("/v1/cluster/key?limit=tags&key=k", &key)
	if a := key.Answers; len(a) != 4 || !a[0].Allowed || !a[0].Beyond || a[3].Beyond {
		t.Errorf("answers about a key: %+v", a)
	}
}

// Promise: a page with a value that makes no sense is refused, with what would be right.
func TestOverviewBadInput(t *testing.T) {
	h := overviewOf(t, rpctest.Specs...)
	for _, c := range []struct {
		page, says string
		status     int
	}{
		{"limits?count=0", "from 1 to", 400},
		{"limits?by=size", "none of name", 400},
		{"limits?bye=name", "bye", 400},
		{"rules?count=x", "from 1 to", 400},
		{"heavy?count=1001", "from 1 to", 400},
		{"top?count=-1", "from 1 to", 400},
		{"keys?prefix=" + strings.Repeat("x", 1025), "at most 1024", 400},
		{"holds?key=x", "key", 400},
		{"key?limit=demo", "key: is empty", 400},
		{"key?limit=nobody&key=a", "nobody", 404},
		{"watch?span=day", "5m", 400},
		{"nothing", "nothing at", 404},
	} {
		answer, text := rpctest.Page(h, "GET", "/v1/cluster/"+c.page, "")
		if answer.StatusCode != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%.40s: %d %s", c.page, answer.StatusCode, text)
		}
	}
}

// Promise: of the pages that may be open at a node, one client has half and leaves room to others;
// what it closes can be opened again. A refusal says how many there are, and when to come again.
func TestOpenPagesAreShared(t *testing.T) {
	server := httptest.NewServer(overviewOf(t))
	t.Cleanup(server.Close) // after the pages have been closed
	open := func(from string) (*http.Response, error) {
		client := http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, DialContext: (&net.Dialer{
				LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)},
			}).DialContext,
		}}
		return client.Get(server.URL + "/v1/cluster/watch")
	}
	// fill opens pages until one is refused.
	fill := func(from string) (pages []*http.Response, refused *http.Response) {
		for len(pages) <= fewestPages {
			answer, err := open(from)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { answer.Body.Close() })
			if answer.StatusCode != http.StatusOK {
				return pages, answer
			}
			pages = append(pages, answer)
		}
		return pages, nil
	}
	greedy, refused := fill("127.0.0.2")
	if len(greedy) != fewestPages/2 || refused.StatusCode != http.StatusTooManyRequests ||
		refused.Header.Get("Retry-After") == "" {
		t.Fatalf("one client has %d pages open: %+v", len(greedy), refused)
	}
	if text, _ := io.ReadAll(refused.Body); !strings.Contains(string(text), "16 of 32 pages are "+
		"open at this node, 16 of them by this client; close one") {
		t.Errorf("%s", text)
	}
	if others, _ := fill("127.0.0.3"); len(others) != fewestPages/4 {
		t.Errorf("another client has %d pages open", len(others))
	}
	for _, page := range greedy {
		page.Body.Close()
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		answer, err := open("127.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what was closed cannot be opened again")
		}
	}
}
