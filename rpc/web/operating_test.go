package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"penstock/cluster"
	"penstock/rpc/fair"
	"penstock/rpc/rpctest"
)

// pipes is a listener for connections without buffers: what is not read is not written.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, open := <-p; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// Promise: answers for the operator that nobody reads are few, and an
// operator that reads gets one meanwhile.
func TestUnreadMetricsAreBounded(t *testing.T) {
	for page, most := range map[string]int{"/metrics": mostOperating, "/v1/top": mostLists} {
		t.Run(page, func(t *testing.T) { demandBounded(t, page, most) })
	}
}

// demandBounded demands that no more than so many answers of a page are unread.
func demandBounded(t *testing.T, page string, most int) {
	node := rpctest.Alone(t, rpctest.PerHour)
	for i := range 20 { // a list of them is longer than net/http gathers
		r := &cluster.Request{Items: []cluster.Item{{
			Limit: rpctest.PerHour.Name, Key: strings.Repeat("k", 1000) + strconv.Itoa(i), Cost: 1,
		}}}
		if err := node.Check(r, make([]cluster.Decision, 1)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s, l := NewServer(New(Config{Node: node, Admin: true, Gate: fair.New()})), make(pipes)
		var open atomic.Int64
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}
		done := make(chan error)
		go func() { done <- s.Serve(l) }()
		ask := func() net.Conn {
			client, server := net.Pipe()
			l <- server
			io.WriteString(client, "GET "+page+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
			synctest.Wait()
			return client
		}
		var unread []net.Conn
		for range 3 * most {
			unread = append(unread, ask())
		}
		operator := ask()
		r, err := http.ReadResponse(bufio.NewReader(operator), nil)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", r, err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := open.Load(); n > int64(most)+1 || time.Since(begin) > 0 {
			t.Errorf("%d connections have answers that are not read, after %v", n,
				time.Since(begin))
		}
		operator.Close()
		for _, c := range unread {
			c.Close()
		}
		s.Close()
		<-done
	})
}
