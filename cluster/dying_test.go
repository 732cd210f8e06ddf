package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Promise: a majority is killed at once, and the rest goes on by itself, as long as its own right
// lasts. A process that is being killed ends its streams first; for a while its machine still takes
// connections on and drops them, and then refuses them. That it does has to be noticed at once.
func TestMostDieSlowly(t *testing.T) {
	for _, lasts := range []time.Duration{0, 150, 300, 420, 480, 520} {
		lasts *= time.Millisecond
		t.Run(fmt.Sprint(lasts), func(t *testing.T) {
			w := newWorld(t, 5, five)
			w.pass(3 * time.Second)
			died := w.now.Add(-time.Millisecond)
			var ends []func()
			for _, id := range []string{"n1", "n2", "n3"} {
				boot := w.nodes[id].Boot()
				for _, left := range []string{"n4", "n5"} {
					ends = append(ends, w.nodes[left].Membership().LineUp(boot))
				}
			}
			for _, id := range []string{"n1", "n2", "n3"} {
				w.nodes[id].Stop()
				delete(w.nodes, id)
			}
			w.meet = func(c *Call, deliver func() *Answer) {
				switch n := w.nodes[c.To.ID]; {
				case n != nil && n.Boot() == c.To.Boot:
					c.Answer = deliver()
				case w.now < died.Add(lasts):
					c.Err = fmt.Errorf("%w: the connection is dropped", ErrUnsent)
				default:
					c.Err = errors.Join(ErrUnsent, ErrGone)
				}
			}
			for _, end := range ends {
				end()
			}
			w.pass(3 * time.Second)
			w.wantOneHolderEach("three seconds after the death")
			for id, n := range w.nodes {
				if !n.Deciding() {
					t.Errorf("%s does not decide", id)
				}
			}
		})
	}
}
