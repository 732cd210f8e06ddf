package client

import (
	"net"
	"testing"
	"time"
)

// Promise: looks in which all was a fallback count if they follow each other; one in which another
// answer was heard begins anew, and one in which nothing was heard changes nothing.
func TestAlone(t *testing.T) {
	var to targets
	looks := 0
	right, fell := Decision{Source: "owner"}, Decision{Source: fallbackSource, Degraded: true}
	for i, look := range []struct {
		heard []*Decision
		alone bool
	}{
		{[]*Decision{&fell}, false},
		{[]*Decision{&right}, false},
		{[]*Decision{&fell}, false},
		{nil, false},
		{[]*Decision{&fell, &right}, false},
		{[]*Decision{&fell, &fell}, false},
		{nil, false},
		{[]*Decision{&fell}, true},
		{[]*Decision{&fell}, false}, // at another node
	} {
		for _, d := range look.heard {
			to.heard(d)
		}
		if got := to.alone(&looks); got != look.alone {
			t.Errorf("look %d: alone %t, want %t", i, got, look.alone)
		}
	}
}

// Promise: a node that was left a moment ago is used again if no other one can be connected to. The
// others may have died since.
func TestLeftNodeIsUsedIfTheOthersAreDead(t *testing.T) {
	var doors [3]net.Listener
	var names []string
	for i := range doors {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		doors[i], names = l, append(names, l.Addr().String())
	}
	to := newTargets(names)
	defer to.close()
	dial := func(i int) error {
		c, err := to.dial(t.Context(), names[i])
		if err == nil {
			c.Close()
		}
		return err
	}
	to.away[names[0]] = time.Now().Add(time.Hour)
	doors[1].Close()
	if err := dial(0); err == nil {
		t.Error("a node that was left is used, though another one is there")
	}
	doors[2].Close()
	if err := dial(0); err != nil {
		t.Errorf("the last node that is there is not used: %v", err)
	}
}

// Promise: what is kept of connections does not grow, though a name leads to one address after the
// other; and the connection that is left is the latest.
func TestConnectionsAreForgotten(t *testing.T) {
	to := newTargets([]string{"name:7948"})
	defer to.close()
	var last net.Conn
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if last, err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer last.Close()
		to.keep("name:7948", last)
	}
	if len(to.conns) != 1 {
		t.Errorf("%d connections are kept of one target", len(to.conns))
	}
	to.leave(last.RemoteAddr().String(), true)
	if _, err := last.Write([]byte("x")); err == nil || !to.avoids("name:7948") ||
		!to.avoids(last.RemoteAddr().String()) {
		t.Errorf("the connection that is left still works (%v), or is not avoided", err)
	}
}

// Promise: an only target that leads to one place is not left, a Unix socket as little as an
// address. Its takes would be lost.
func TestWhichTargetIsNeverLeft(t *testing.T) {
	for target, only := range map[string]bool{
		"unix:///run/penstock.grpc": true, "127.0.0.1:7946": true, "[::1]:7946": true,
		"penstock:7946": false, // may lead elsewhere the next time
	} {
		if got := newTargets([]string{target}).only; got != only {
			t.Errorf("%s: never left %t, want %t", target, got, only)
		}
	}
}
