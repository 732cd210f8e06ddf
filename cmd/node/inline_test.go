package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// postFrom is what a node answers to a client at an address of its own.
func postFrom(t *testing.T, r *running, from, path, body string) (code int, answer string) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	got, err := (&http.Client{Transport: transport}).Post("http://"+r.doors.address("--http")+path,
		"application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

// list is a JSON list of n objects.
func list(n int, object func(i int) string) string {
	var all []string
	for i := range n {
		all = append(all, object(i))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// floods bring 40,000 limits along that count for 30 days, by 40 requests of 1000 each.
var floods = map[string]func(t *testing.T, r *running){
	"HTTP, 40 clients": func(t *testing.T, r *running) {
		for k := range 40 {
			postFrom(t, r, fmt.Sprint("127.0.7.", k+1), "/v1/check",
				`{"items":`+list(1000, func(i int) string {
					return fmt.Sprintf(
						`{"key":"k%d","inline":{"name":"x-%d-%d","algorithm":"gcra","limit":5,`+
							`"per":"720h"}}`, i, k, i)
				})+"}")
		}
	},
	"HTTP": func(t *testing.T, r *running) {
		for k := range 40 {
			code, answer := postFrom(t, r, "127.0.0.1", "/v1/check",
				`{"items":`+list(1000, func(i int) string {
					return fmt.Sprintf(
						`{"key":"k%d","inline":{"name":"x-%d-%d","algorithm":"gcra","limit":5,`+
							`"per":"720h"}}`, i, k, i)
				})+"}")
			if k == 39 && (code != http.StatusTooManyRequests ||
				!strings.Contains(answer, "this client has brought 2048 different limits")) {
				t.Errorf("the last request is answered with %d %.300s", code, answer)
			}
		}
	},
	"Gubernator": func(t *testing.T, r *running) {
		for k := range 40 {
			_, answer := postFrom(t, r, "127.0.0.1", "/v1/GetRateLimits",
				`{"requests":`+list(1000, func(i int) string {
					return fmt.Sprintf(
						`{"name":"x-%d-%d","uniqueKey":"k%d","hits":1,"limit":5,`+
							`"duration":2592000000}`, k, i, i)
				})+"}")
			if k == 39 && strings.Count(answer,
				"this client has brought 2048 different limits") != 1000 {
				t.Errorf("the last request is answered with %.300s", answer)
			}
		}
	},
	"Redis": func(t *testing.T, r *running) {
		conn, err := net.Dial("tcp", r.doors.address("--redis"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		replies, refused := bufio.NewReader(conn), 0
		for k := range 40 {
			var b bytes.Buffer
			for i := range 1000 {
				key, most := fmt.Sprint("k", i), fmt.Sprint(10+1000*k+i)
				fmt.Fprintf(&b,
					"*4\r\n$9\r\nRL.REDUCE\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$7\r\n2592000\r\n",
					len(key), key, len(most), most)
			}
			if _, err := conn.Write(b.Bytes()); err != nil {
				t.Fatal(err)
			}
			for range 1000 {
				line, err := replies.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(line,
					"-ERR inline: this client has brought 2048 different limits") {
					refused++
				}
			}
		}
		if refused != 40_000-2048 {
			t.Errorf("%d commands are refused, want %d", refused, 40_000-2048)
		}
	},
}

// Promise: limits that requests bring along, however many, lock nobody out of limits of files. What
// is refused is counted and logged.
func TestInlineLimitsLockNobodyOut(t *testing.T) {
	for name, flood := range floods {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "limits.yaml")
			putFile(t, file, login(5))
			r, book := startNode(t, func(s *settings) {
				s.Limits, s.HTTP, s.Redis, s.Memory = file, "127.0.0.1:0", "127.0.0.1:0", 64<<20
			})
			r.waitReady(t)
			flood(t, r)
			for i := range 100 {
				if err := says(t, r, fmt.Sprint("/v1/check?limit=login&key=k", i),
					`"allowed":true`); err != nil {
					t.Fatal(err)
				}
			}
			if strings.Contains(page(t, r, "/metrics"), "penstock_table_refused_total 0\n") {
				t.Error("no refusal is counted")
			}
			eventually(t, "the refusals are logged", func() error {
				if !strings.Contains(book.String(), "too many different limits have counters") {
					return fmt.Errorf("the log says\n%s", book)
				}
				return nil
			})
		})
	}
}

// Promise (--inline deny): each door refuses what brings its limit along, names the flag, and
// charges nothing; limits of files work.
func TestInlineDenied(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	putFile(t, file, login(5))
	r, _ := startNode(t, func(s *settings) {
		s.Limits, s.HTTP, s.Redis, s.Inline = file, "127.0.0.1:0", "127.0.0.1:0", "deny"
	})
	r.waitReady(t)
	c, err := client.New(client.Config{Targets: []string{r.doors.address("--grpc")}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const inline = `"inline":{"algorithm":"gcra","limit":5,"per":"1m"}`
	rows := map[string]func() (answer string, refused bool){
		"HTTP": func() (string, bool) {
			code, answer := postFrom(t, r, "127.0.0.1", "/v1/check",
				`{"items":[{"limit":"login","key":"a"},{"key":"a",`+inline+`}]}`)
			return answer, code == http.StatusForbidden
		},
		"HTTP, a reservation": func() (string, bool) {
			code, answer := postFrom(t, r, "127.0.0.1", "/v1/reserve",
				`{"ttl_ms":1000,"key":"a",`+inline+`}`)
			return answer, code == http.StatusForbidden
		},
		"gRPC": func() (string, bool) {
			_, err := checkItems(context.Background(), c, []*penstockv1.Item{
				{Limit: "login", Key: []byte("a")},
				{
					Key: []byte("a"),
					Inline: &penstockv1.InlineLimit{
						Algorithm: penstockv1.Algorithm_ALGORITHM_GCRA,
						Limit:     5, PerMs: 60_000,
					},
				},
			})
			return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), "PermissionDenied")
		},
		"Gubernator": func() (string, bool) {
			code, answer := postFrom(t, r, "127.0.0.1", "/v1/GetRateLimits",
				`{"requests":[{"name":"x","uniqueKey":"a","hits":1,"limit":5,"duration":60000}]}`)
			return answer, code == http.StatusOK && strings.Contains(answer, `"error":"`)
		},
	}
	for _, words := range []string{
		"RL.REDUCE a 5 60", "RL.GET a 5 60", "RL.SESSIONIZE a 5 60",
		"CL.THROTTLE a 5 5 60",
	} {
		rows["Redis, "+words] = func() (string, bool) {
			answer := sayRedis(t, r.doors.address("--redis"), strings.Fields(words)...)
			return answer, strings.HasPrefix(answer, "-")
		}
	}
	for name, ask := range rows {
		if answer, refused := ask(); !refused || !strings.Contains(answer, "--inline deny") {
			t.Errorf("%s: refused %v, %s", name, refused, answer)
		}
	}
	if err := says(t, r, "/v1/check?limit=login&key=a", `"remaining":4`); err != nil {
		t.Error(err)
	}
	if s := r.node.Table().Stats(); s.Limits != 1 {
		t.Errorf("the table has counters of %d limits, want that of login alone", s.Limits)
	}
}
