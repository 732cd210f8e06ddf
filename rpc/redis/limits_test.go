package redis

import (
	"testing"
	"time"

	"penstock/rpc/door"
)

// Promise: the limits that a client's connections have at hand count among its own for as long as
// it uses them, so its bound is that of all its connections together.
func TestLimitsAtHandAreCounted(t *testing.T) {
	s := New(Config{Node: loneNode(t)})
	now := time.Now()
	conns := map[int]*connection{}
	ask := func(i int) error {
		c := conns[i]
		if c == nil {
			c = &connection{door: s, client: client{from: door.Caller{Addr: "192.0.2.1:1"}}}
			conns[i] = c
		}
		c.now = now
		_, err := c.limit(commandLimit{
			bucket: true, count: int64(i + 1), more: 1, per: time.Second,
		}, true)
		return err
	}
	const most = 2048
	let := func(from int) (n int) {
		for i := range most {
			if ask(from+i) == nil {
				n++
			}
		}
		return n
	}
	if n := let(0); n != most {
		t.Fatalf("%d limits are let in at first, want %d", n, most)
	}
	now = now.Add(time.Hour) // their counters have run out
	if n := let(most); n != most {
		t.Fatalf("%d others are let in when the first have run out, want %d", n, most)
	}
	if n := let(0); n != 0 {
		t.Errorf("%d of the first are let in beside %d others, want none", n, most)
	}
}
