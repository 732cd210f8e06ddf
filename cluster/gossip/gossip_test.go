package gossip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"

	"penstock/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inVirtualTime runs a test in a bubble of its own, and at the end gives the library's goroutines
// the time they need to end.
func inVirtualTime(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(10 * time.Second) }) // first registered, last called
		test(t)
	})
}

// node is a Gossip on a wire, with all Views it ever had.
type node struct {
	*Gossip
	t        *testing.T
	id       string
	end      *wireEnd
	mu       sync.Mutex // guards what follows
	views    []*cluster.View
	conflict error
}

var boots uint64 // of the nodes of all tests; each test runs alone

// start starts the node id at 10.0.0.<host>:7946; change may alter its Config.
func start(t *testing.T, w *wire, id string, host int, change func(*Config)) *node {
	t.Helper()
	n := &node{t: t, id: id, end: w.end(hostAddr(host))}
	boots++
	c := Config{
		Member: cluster.Member{
			ID: id, Boot: boots, PeerAddr: fmt.Sprintf("10.0.0.%d:7947", host), GRPCAddr: "g",
			HTTPAddr: "h",
		},
		Bind:      hostAddr(host),
		Cluster:   "test",
		transport: n.end,
		OnView: func(v *cluster.View) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.views = append(n.views, v)
		},
		OnConflict: func(err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.conflict != nil || err == nil {
				t.Errorf("%s: OnConflict(%v) after OnConflict(%v)", id, err, n.conflict)
			}
			n.conflict = err
		},
	}
	c.Answers = w.answers
	if change != nil {
		change(&c)
	}
	g, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	n.Gossip = g
	w.runs(c.Member.Boot, true)
	t.Cleanup(n.crash)
	return n
}

func join(hosts ...int) func(*Config) {
	return func(c *Config) {
		for _, h := range hosts {
			c.Join = append(c.Join, hostAddr(h))
		}
	}
}

func hostAddr(host int) string { return fmt.Sprintf("10.0.0.%d:7946", host) }

// crash takes the node away without a word.
func (n *node) crash() {
	n.end.unplug()
	n.end.wire.runs(n.config.Member.Boot, false)
	if err := n.Close(); err != nil {
		n.t.Errorf("%s: Close: %v", n.id, err)
	}
}

// activate waits until the node has joined and makes it ACTIVE.
func (n *node) activate() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	if err := n.Wait(ctx); err != nil {
		n.t.Fatalf("%s: %v", n.id, err)
	}
	if err := unlessUnconfirmed(n.SetState(cluster.StateActive)); err != nil {
		n.t.Fatalf("%s: %v", n.id, err)
	}
}

// unlessUnconfirmed is err, or nil if it only says that the library's confirmation was lost: in
// virtual time all messages may leave in the instant in which the change is made, which is before
// the library waits for the last of them. Whether the others know the change, the tests see.
func unlessUnconfirmed(err error) error {
	if errors.Is(err, errUnconfirmed) {
		return nil
	}
	return err
}

// says is the node's View in words: "a* b c-" is a ACTIVE, b JOINING, c LEAVING.
func (n *node) says() string { return words(n.View()) }

func words(v *cluster.View) string {
	var w []string
	for _, m := range v.Members {
		w = append(w, m.ID+map[cluster.State]string{
			cluster.StateActive:  "*",
			cluster.StateLeaving: "-",
		}[m.State])
	}
	return strings.Join(w, " ")
}

func (n *node) seen() []*cluster.View {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.views)
}

func (n *node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.views = nil
}

// agree waits until all these nodes say the same, and have the same ring.
func agree(t *testing.T, want string, nodes ...*node) {
	t.Helper()
	eventually(t, func() error {
		for _, n := range nodes {
			if n.says() != want || n.View().RingHash() != nodes[0].View().RingHash() {
				return fmt.Errorf("%s says %q (ring %x), want %q (ring %x)", n.id, n.says(),
					n.View().RingHash(), want, nodes[0].View().RingHash())
			}
		}
		return nil
	})
}

// eventually polls for a minute: of virtual time under synctest, of real time over sockets.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for range 6000 {
		if err = check(); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(err)
}

// three are the nodes a, b and c, ACTIVE and agreed.
func three(t *testing.T, w *wire) (a, b, c *node) {
	t.Helper()
	a = start(t, w, "a", 1, nil)
	b = start(t, w, "b", 2, join(1))
	c = start(t, w, "c", 3, join(1, 2))
	for _, n := range []*node{a, b, c} {
		n.activate()
	}
	agree(t, "a* b* c*", a, b, c)
	return a, b, c
}

// The promise: nodes that join see each other with all that their records say, own nothing before
// they are ACTIVE, and leave every ring before they are gone.
func TestJoinAndLeave(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a := start(t, w, "a", 1, nil)
		if a.says() != "a" || a.View().Ring != nil {
			t.Errorf("at its start a says %q and has the ring %v", a.says(), a.View().Ring)
		}
		a.activate()
		b := start(t, w, "b", 2, func(c *Config) { join(1)(c); c.Member.Role = cluster.RoleAgent })
		c := start(t, w, "c", 3, join(1))
		agree(t, "a* b c", a, b, c)
		b.activate()
		c.activate()
		agree(t, "a* b* c*", a, b, c)
		for _, n := range []*node{a, b, c} {
			for i, want := range []cluster.Member{a.View().Me(), b.View().Me(), c.View().Me()} {
				if got := n.View().Members[i]; got != want {
					t.Errorf("%s knows %+v, which says of itself %+v", n.id, got, want)
				}
			}
			if got := n.View().Ring.Members(); !slices.Equal(got, []string{"a", "c"}) {
				t.Errorf("%s has %q in the ring; b is an agent", n.id, got)
			}
		}

		a.forget()
		if err := unlessUnconfirmed(c.SetState(cluster.StateLeaving)); err != nil {
			t.Error(err)
		}
		agree(t, "a* b* c-", a, b, c)
		if err := c.Leave(2 * time.Second); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		agree(t, "a* b*", a, b)
		if got := a.seen(); len(got) != 2 {
			t.Errorf("a had %d Views while c left, want c LEAVING and c gone", len(got))
		}
	})
}

// The promise: Leave alone also goes through LEAVING, and a node that has said goodbye is not
// looked for.
func TestWhoHasLeftIsLeftAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a, b, c := three(t, w)
		a.forget()
		if err := c.Leave(2 * time.Second); err != nil {
			t.Error(err)
		}
		agree(t, "a* b*", a, b)
		if got := a.seen(); len(got) == 0 || words(got[0]) != "a* b* c-" {
			t.Errorf("a did not see c LEAVING first: %d Views", len(got))
		}
		if lost := a.roster.missing(10); len(lost) != 0 {
			t.Errorf("a looks for %q", lost)
		}
		for _, err := range []error{
			c.SetState(cluster.StateActive),
			c.SetState(cluster.StateJoining),
		} {
			if !errors.Is(err, ErrStopped) {
				t.Errorf("SetState after Leave: %v", err)
			}
		}
		time.Sleep(time.Minute)
		agree(t, "a* b*", a, b)
	})
}

// The promise: a node that vanishes is out of the ring after a few seconds, on all sides, and is
// looked for.
func TestCrash(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a, b, c := three(t, w)
		c.crash()
		agree(t, "a* b*", a, b)
		if lost := a.roster.missing(10); !slices.Equal(lost, []string{hostAddr(3)}) {
			t.Errorf("a looks for %q", lost)
		}
	})
}

// The promise: a node killed and started again, so quickly that nobody has missed it, is seen by
// the others as one change of its boot. It is never out of their Views, and the end of its old boot
// is no event.
func TestRestartUnderTheSameName(t *testing.T) {
	for _, host := range []int{3, 4} {
		t.Run(fmt.Sprintf("from host 3 to host %d", host), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				w := newWire()
				a, b, c := three(t, w)
				before := c.View().Me()
				a.forget()
				c.crash()
				c = start(t, w, "c", host, func(c *Config) {
					join(1)(c)
					c.Member.State = cluster.StateJoining
				})
				c.activate()
				agree(t, "a* b* c*", a, b, c)
				time.Sleep(time.Minute) // the old boot is found dead
				agree(t, "a* b* c*", a, b, c)
				var boots []uint64
				for _, v := range a.seen() {
					i := v.Find("c")
					if i < 0 {
						t.Fatalf("a said %q", words(v))
					}
					boots = append(boots, v.Members[i].Boot)
				}
				boots = slices.Compact(boots)
				if now := c.View().Me(); !slices.Equal(boots, []uint64{now.Boot}) ||
					now.Boot == before.Boot || len(a.seen()) > 2 {
					t.Errorf("a saw the boots %v of c in %d Views; it was %d and is %d", boots,
						len(a.seen()), before.Boot, now.Boot)
				}
				if lost := a.roster.missing(10); len(lost) != 0 {
					t.Errorf("a looks for %q", lost)
				}
			})
		})
	}
}

// The promise: a partition that lasted long enough for both sides to give each other up heals by
// itself, without any seed.
func TestHealAfterPartition(t *testing.T) {
	for _, lasts := range []time.Duration{10 * time.Second, 5 * time.Minute} {
		t.Run(lasts.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				w, names := newWire(), &book{}
				names.set("pen.test", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
				named := func(c *Config) {
					c.Join, c.Resolver = []string{"dns+pen.test:7946"}, names
				}
				var nodes []*node
				for host, id := range []string{"a", "b", "c", "d"} {
					nodes = append(nodes, start(t, w, id, host+1, named))
				}
				for _, n := range nodes {
					n.activate()
				}
				agree(t, "a* b* c* d*", nodes...)
				names.forget("pen.test")
				w.split(1, hostAddr(3), hostAddr(4))
				agree(t, "a* b*", nodes[:2]...)
				agree(t, "c* d*", nodes[2:]...)
				time.Sleep(lasts)
				w.heal()
				agree(t, "a* b* c* d*", nodes...)
				for _, n := range nodes {
					if lost := n.roster.missing(10); len(lost) != 0 {
						t.Errorf("%s still looks for %q", n.id, lost)
					}
				}
			})
		})
	}
}

// The promise: two halves that never knew each other find together by a seed, although all are
// joined already.
func TestIslandsMeetByASeed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		w.split(1, hostAddr(3), hostAddr(4))
		all := func(c *Config) { join(1, 2, 3, 4)(c) }
		a, b := start(t, w, "a", 1, all), start(t, w, "b", 2, all)
		c, d := start(t, w, "c", 3, all), start(t, w, "d", 4, all)
		agree(t, "a b", a, b)
		agree(t, "c d", c, d)
		w.heal()
		agree(t, "a b c d", a, b, c, d)
	})
}

// The promise: a node that reaches no seed stays alone, does not become ACTIVE, says why, and goes
// on trying.
func TestNoSeedNoCluster(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		var lines lockedBuilder
		b := start(t, w, "b", 2, func(c *Config) {
			join(1)(c)
			c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := b.Wait(ctx); !errors.Is(err, ErrNotJoined) ||
			!strings.Contains(err.Error(), hostAddr(1)) {
			t.Errorf("Wait: %v", err)
		}
		if err := b.SetState(cluster.StateActive); !errors.Is(err, ErrNotJoined) {
			t.Errorf("SetState: %v", err)
		}
		if b.says() != "b" || b.Joined() {
			t.Errorf("b says %q, joined: %v", b.says(), b.Joined())
		}
		// of some 3600 rounds
		if n := strings.Count(lines.String(), "no seed was reached"); n < 1 || n > 200 {
			t.Errorf("the log says it %d times", n)
		}
		a := start(t, w, "a", 1, nil)
		a.activate()
		b.activate()
		agree(t, "a* b*", a, b)
	})
}

// The promise: a stranger by label or key is refused: it joins nothing, nobody lists it, and it is
// told what differs. Those that fit are not disturbed.
func TestStrangersAreRefused(t *testing.T) {
	key := func(fill byte) []byte { return slices.Repeat([]byte{fill}, 32) }
	for _, row := range []struct {
		name     string
		cluster  []byte // its key, nil = none
		says     string
		stranger func(*Config)
	}{
		{"other label", nil, `another --cluster than "staging"`, func(c *Config) {
			c.Cluster = "staging"
		}},
		{"other label, same key", key(1), `another --cluster than "staging"`, func(c *Config) {
			c.Cluster, c.Keys = "staging", [][]byte{key(1)}
		}},
		{"other key", key(1), "other gossip keys", func(c *Config) { c.Keys = [][]byte{key(2)} }},
		{"no key", key(1), "gossip keys, and this node has none", func(*Config) {}},
		{"key where none is", nil, "no gossip keys, and this node has", func(c *Config) {
			c.Keys = [][]byte{key(1)}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				w := newWire()
				fit := func(c *Config) {
					if row.cluster != nil {
						c.Keys = [][]byte{row.cluster}
					}
				}
				a := start(t, w, "a", 1, fit)
				b := start(t, w, "b", 2, func(c *Config) { fit(c); join(1)(c) })
				agree(t, "a b", a, b)
				x := start(t, w, "x", 3, func(c *Config) { row.stranger(c); join(1, 2)(c) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := x.Wait(ctx)
				if !errors.Is(err, ErrNotJoined) || !strings.Contains(err.Error(), row.says) {
					t.Errorf("Wait: %v", err)
				}
				t.Log(err)
				agree(t, "a b", a, b)
				if x.says() != "x" {
					t.Errorf("x says %q", x.says())
				}
			})
		})
	}
}

// The promise: keys can be replaced one node at a time, because all keys decrypt and the first
// encrypts.
func TestKeysAreReplacedNodeByNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		key1, key2 := slices.Repeat([]byte{1}, 32), slices.Repeat([]byte{2}, 32)
		a := start(t, w, "a", 1, func(c *Config) { c.Keys = [][]byte{key1, key2} })
		b := start(t, w, "b", 2, func(c *Config) { c.Keys = [][]byte{key2, key1}; join(1)(c) })
		agree(t, "a b", a, b)
	})
}

// The promise: a second node of an id that is in use is refused, with a reason that names the first
// one, which notices nothing.
func TestTwoNodesWithOneID(t *testing.T) {
	for _, row := range []struct {
		name    string
		started time.Duration // of the second one, by its own clock, after the first one
	}{{"the second one started later", time.Hour}, {"its clock is behind", -time.Hour}} {
		t.Run(row.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				w := newWire()
				a, b, first := three(t, w)
				time.Sleep(time.Minute) // news of the beginning come by several ways
				for _, n := range []*node{a, b, first} {
					n.forget()
				}
				second := start(t, w, "c", 4, func(c *Config) {
					join(1)(c)
					c.Started = time.Now().Add(row.started)
				})
				second.wantRefused(`"c": another node has it (peer address 10.0.0.3:7947`)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := second.Wait(ctx); !errors.Is(err, ErrNameTaken) {
					t.Errorf("the second one waits for its name: %v", err)
				}
				second.crash()
				time.Sleep(time.Minute)
				for _, n := range []*node{a, b, first} {
					if views := n.seen(); len(views) > 0 {
						t.Errorf("%s has noticed: %q", n.id, words(views[0]))
					}
				}
				if first.conflict != nil {
					t.Errorf("the first one was told %v", first.conflict)
				}
			})
		})
	}
}

// wantRefused waits until the node has been told that it must stop.
func (n *node) wantRefused(why string) {
	n.t.Helper()
	eventually(n.t, func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.conflict == nil || !strings.Contains(n.conflict.Error(), why) {
			return fmt.Errorf("%s was told %v, want %q", n.id, n.conflict, why)
		}
		return nil
	})
}

// The promise: of two nodes that take one id at the same moment the older one stays and the younger
// one is told why it must go. That no more than one is a member is the configuration's promise.
func TestTwoNodesWithOneIDAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a, b, _ := three(t, w)
		one, two := start(t, w, "d", 4, join(1)), start(t, w, "d", 5, join(2))
		var wg sync.WaitGroup
		for _, n := range []*node{one, two} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if n.Wait(ctx) == nil {
					_ = n.SetState(cluster.StateActive)
				}
			})
		}
		wg.Wait()
		two.wantRefused(`"d"`)
		if one.conflict != nil {
			t.Errorf("the older one was told %v", one.conflict)
		}
		two.crash()
		agree(t, "a* b* c* d*", a, b, one)
	})
}

// The promise: two nodes of one id that learn of each other late, when their clusters meet, become
// one: the older one stays, and the younger one stops deciding before it is asked to stop.
func TestTwoNodesWithOneIDMeetLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a := start(t, w, "a", 1, nil)
		a.activate()
		older := start(t, w, "c", 2, join(1))
		older.activate()
		b := start(t, w, "b", 3, nil)
		b.activate()
		var contested atomic.Bool
		younger := start(t, w, "c", 4, func(c *Config) {
			join(3)(c)
			c.OnContest = func() { contested.Store(true) }
		})
		younger.activate()
		agree(t, "a* c*", a, older)
		agree(t, "b* c*", b, younger)
		bridge := start(t, w, "d", 5, join(1, 3))
		bridge.activate()
		younger.wantRefused("decides nothing any more")
		if !contested.Load() || younger.View().Me().State == cluster.StateActive {
			t.Errorf("the younger one goes on: %q", younger.says())
		}
		younger.crash()
		agree(t, "a* b* c* d*", a, b, older, bridge)
		if older.conflict != nil {
			t.Errorf("the older one was told %v", older.conflict)
		}
	})
}

// The promise: a member that this node cannot reach may be alive for others. Its name is free when
// gossip has found it dead, and not before.
func TestRestartBesideASilentOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a, b, c := three(t, w)
		silent := func(c *Config) {
			c.Answers = func(context.Context, cluster.Member) error {
				return errors.New("no answer")
			}
		}
		c.crash()
		again := start(t, w, "c", 4, func(c *Config) { join(1)(c); silent(c) })
		again.activate()
		agree(t, "a* b* c*", a, b, again)
		if again.conflict != nil {
			t.Error(again.conflict)
		}
	})
}

// The promise: a node that was killed and started again after the clock was set back is not
// mistaken for a duplicate. It stands back until its own old boot has been found dead.
func TestRestartAfterTheClockWasSetBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a, b, c := three(t, w)
		c.crash()
		c = start(t, w, "c", 3, func(c *Config) {
			join(1)(c)
			c.Started = time.Now().Add(-time.Hour)
		})
		c.activate()
		agree(t, "a* b* c*", a, b, c)
		time.Sleep(time.Minute)
		if c.conflict != nil {
			t.Error(c.conflict)
		}
	})
}

// The promise: a running process that was copied (the same boot at two addresses) is told.
func TestCopiedProcess(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a, _, c := three(t, w)
		twin := start(t, w, "c", 4, func(config *Config) {
			join(1)(config)
			config.Member.Boot = c.config.Member.Boot
		})
		eventually(t, func() error {
			twin.mu.Lock()
			defer twin.mu.Unlock()
			if twin.conflict == nil || !strings.Contains(twin.conflict.Error(),
				"a copy of this very process") {
				return fmt.Errorf("the twin was told %v", twin.conflict)
			}
			return nil
		})
		if got := a.View().Members[2].PeerAddr; got != c.config.Member.PeerAddr {
			t.Errorf("a has gone over to the twin at %s", got)
		}
	})
}

// The promise: many joins at once make few Views, a death makes one at once, and nothing is ever
// lost by it.
func TestManyAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a := start(t, w, "a", 1, nil)
		var others []*node
		want := []string{"a"}
		for i := range 20 {
			id := fmt.Sprintf("n%02d", i)
			others, want = append(others, start(t, w, id, 10+i, join(1))), append(want, id)
		}
		agree(t, strings.Join(want, " "), append(others, a)...)
		if n := len(a.seen()); n > 5 {
			t.Errorf("20 joins made %d Views", n)
		}
		for i, v := range a.seen() {
			if i > 0 && slices.Equal(v.Members, a.seen()[i-1].Members) {
				t.Errorf("View %d is the same as the one before", i)
			}
		}
	})
}

// The promise: joins wait for more; deaths, and nodes about to leave, do not, and their View has
// what was waiting too.
func TestWhoGoesDoesNotWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a := start(t, w, "a", 1, func(c *Config) { c.Timing.Coalesce = time.Hour })
		b, c := start(t, w, "b", 2, join(1)), start(t, w, "c", 3, join(1))
		agree(t, "a b c", b, c)
		if time.Sleep(time.Minute); a.says() != "a" {
			t.Errorf("a says %q before the hour is over", a.says())
		}
		c.crash()
		agree(t, "a b", a, b)
		if err := unlessUnconfirmed(b.SetState(cluster.StateLeaving)); err != nil {
			t.Error(err)
		}
		agree(t, "a b-", a, b)
	})
}

// The promise: a View has the same ring as the View before if its ring has the same nodes; none is
// built.
func TestSameNodesSameRing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a, b, _ := three(t, w)
		before, views := a.View().Ring, len(a.seen())
		d := start(t, w, "d", 4, join(1))
		agree(t, "a* b* c* d", a, b, d)
		if len(a.seen()) == views || a.View().Ring != before {
			t.Error("a ring was built for a node that is not in it")
		}
		d.activate()
		agree(t, "a* b* c* d*", a, b, d)
		if a.View().Ring == before {
			t.Error("the ring is as it was, although a node has come into it")
		}
	})
}

// The promise: news reach the others although the library's next round is an hour away.
func TestNewsWaitForNoRound(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		rare := func(seeds ...int) func(*Config) {
			return func(c *Config) {
				join(seeds...)(c)
				c.Timing = Timing{Gossip: time.Hour, Probe: time.Hour, PushPull: time.Hour}
			}
		}
		a := start(t, w, "a", 1, rare())
		b := start(t, w, "b", 2, rare(1))
		c := start(t, w, "c", 3, rare(1))
		agree(t, "a b c", a, b, c)
		for _, n := range []*node{c, a} {
			// an error says that it was not told as often as it should be
			_ = n.SetState(cluster.StateActive)
		}
		agree(t, "a* b c*", a, b, c)
		_ = a.SetState(cluster.StateLeaving)
		agree(t, "a- b c*", a, b, c)
	})
}

// The promise: SetState shows in the node's own View when it returns, and what is refused changes
// nothing.
func TestSetState(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		a := start(t, newWire(), "a", 1, nil)
		for _, state := range []cluster.State{
			cluster.StateActive, cluster.StateJoining,
			cluster.StateLeaving, cluster.StateLeaving,
		} {
			if err := a.SetState(state); err != nil || a.View().Me().State != state {
				t.Errorf("SetState(%v): %v, and the View says %v", state, err, a.View().Me().State)
			}
		}
		if err := a.SetState(9); err == nil || a.View().Me().State != cluster.StateLeaving {
			t.Errorf("SetState(9): %v", err)
		}
		if n := len(a.seen()); n != 4 {
			t.Errorf("%d Views, want the first and three changes", n)
		}
	})
}

// The promise: the end can come in any order and more than once. (The library panics at Leave after
// Shutdown.)
func TestLeaveAndCloseInAnyOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		a, b, _ := three(t, w)
		for range 2 {
			if err := a.Leave(time.Second); err != nil {
				t.Errorf("Leave: %v", err)
			}
		}
		for range 2 {
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		for _, err := range []error{
			a.Leave(time.Second), b.Leave(time.Second),
			b.SetState(cluster.StateLeaving),
		} {
			if !errors.Is(err, ErrStopped) {
				t.Errorf("after Close: %v", err)
			}
		}
		if err := a.Leave(0); err == nil {
			t.Error("Leave takes a timeout of 0, with which the library would wait for ever")
		}
		x := start(t, w, "x", 9, join(8))
		time.AfterFunc(time.Second, func() { _ = x.Close() })
		if err := x.Wait(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("Wait during Close: %v", err)
		}
	})
}

// The promise: a node that speaks another version, or distributes keys differently, is refused with
// a reason on both sides, and appears in nobody's View.
func TestOtherVersionsAreRefused(t *testing.T) {
	record := func(change func(*meta)) []byte {
		m := meta{boot: 99, peer: "10.0.0.2:7947", algorithm: algorithm}
		change(&m)
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, row := range []struct {
		want   string
		name   string
		record []byte
	}{
		{"distributes keys by another algorithm", nodeName("x", 99), record(func(m *meta) {
			m.algorithm++
		})},
		{
			"version 2, this node understands 1", nodeName("x", 99),
			append([]byte{2}, record(func(*meta) {})[1:]...),
		},
		{"state 7", nodeName("x", 99), record(func(m *meta) { m.state = 7 })},
		{"are of different boots", nodeName("x", 99), record(func(m *meta) { m.boot++ })},
		{"is not id/boot", "x", record(func(*meta) {})},
		// no ring would take it
		{
			"at most 255 are supported", nodeName(strings.Repeat("x", 256), 99),
			record(func(*meta) {}),
		},
		{"ends too early", nodeName("x", 99), nil},
	} {
		t.Run(row.want, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				w := newWire()
				startStranger(t, w, row.name, 2, row.record)
				b := start(t, w, "b", 3, join(2))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := b.Wait(ctx); !errors.Is(err, ErrNotJoined) ||
					!strings.Contains(err.Error(), row.want) {
					t.Errorf("Wait: %v; want an error with %q", err, row.want)
				}
				if b.says() != "b" {
					t.Errorf("b says %q", b.says())
				}
			})
			inVirtualTime(t, func(t *testing.T) {
				w := newWire()
				a := start(t, w, "a", 1, nil)
				x := startStranger(t, w, row.name, 2, row.record)
				_, _ = x.Join([]string{hostAddr(1)})
				time.Sleep(10 * time.Second)
				if a.says() != "a" || a.list.NumMembers() != 1 {
					t.Errorf("a says %q, and the library knows %d", a.says(), a.list.NumMembers())
				}
			})
		})
	}
}

// startStranger starts the library alone, with a record as another program or version would have
// it.
func startStranger(t *testing.T, w *wire, name string, host int,
	record []byte,
) *memberlist.Memberlist {
	t.Helper()
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label, c.Transport, c.Delegate = name, "test", w.end(hostAddr(host)),
		strangeRecord(record)
	c.DelegateProtocolVersion, c.DelegateProtocolMin, c.DelegateProtocolMax = protocol, protocol,
		protocol
	c.LogOutput, c.EnableCompression = io.Discard, false // no node packs
	list, err := memberlist.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := list.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return list
}

type strangeRecord []byte

func (s strangeRecord) NodeMeta(int) []byte           { return s }
func (strangeRecord) NotifyMsg([]byte)                {}
func (strangeRecord) GetBroadcasts(int, int) [][]byte { return nil }
func (strangeRecord) LocalState(bool) []byte          { return nil }
func (strangeRecord) MergeRemoteState([]byte, bool)   {}

// The promise: it works over real sockets as it does over the wire of these tests, and binds
// nothing but what it is told.
func TestRealSockets(t *testing.T) {
	real := func(id string, change func(*Config)) (*Gossip, error) {
		c := Config{
			Member: cluster.Member{ID: id, Boot: 7, PeerAddr: "127.0.0.1:1"},
			Bind:   "localhost:0", Cluster: "test", Keys: [][]byte{slices.Repeat([]byte{1}, 32)},
			Timing: Timing{
				Probe: 200 * time.Millisecond, ProbeTimeout: 100 * time.Millisecond,
				Gossip: 20 * time.Millisecond, Reconnect: time.Second,
			},
		}
		if change != nil {
			change(&c)
		}
		g, err := Start(t.Context(), c)
		if err == nil {
			t.Cleanup(func() { _ = g.Close() })
		}
		return g, err
	}
	a, err := real("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if host, _, _ := net.SplitHostPort(a.Addr()); !net.ParseIP(host).IsLoopback() {
		t.Fatalf("localhost was bound as %s", a.Addr())
	}
	if _, err := real("z", func(c *Config) {
		c.Bind = a.Addr()
	}); err == nil || !strings.Contains(err.Error(), "is another node running there?") {
		t.Errorf("the same port twice: %v", err)
	}
	seed := func(c *Config) { c.Join = []string{a.Addr()} }
	b, err := real("b", seed)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := real("x", func(c *Config) { seed(c); c.Cluster = "staging" })
	if err != nil {
		t.Fatal(err)
	}
	said := func(g *Gossip, want string) func() error {
		return func() error {
			if got := words(g.View()); got != want {
				return fmt.Errorf("%s says %q, want %q", g.config.Member.ID, got, want)
			}
			return nil
		}
	}
	if err := b.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(a.SetState(cluster.StateActive), b.SetState(cluster.StateActive)); err !=
		nil {
		t.Error(err)
	}
	eventually(t, said(a, "a* b*"))
	eventually(t, said(b, "a* b*"))
	eventually(t, func() error {
		if stranger.knocks.refused.Load() == nil {
			return errors.New("the stranger was not refused yet")
		}
		return nil
	})
	if stranger.Joined() || said(stranger, "x")() != nil {
		t.Errorf("the stranger says %q", words(stranger.View()))
	}
	if err := b.Leave(2 * time.Second); err != nil {
		t.Error(err)
	}
	eventually(t, said(a, "a*"))
}

// The promise: what cannot work is refused before anything is opened, and the text names what to
// change. Keys are never in it.
func TestBadConfig(t *testing.T) {
	for _, row := range []struct {
		want   string
		change func(*Config)
	}{
		{"id is empty", func(c *Config) { c.Member.ID = "" }},
		{"256 bytes; at most 255", func(c *Config) { c.Member.ID = strings.Repeat("x", 256) }},
		{"control characters", func(c *Config) { c.Member.ID = "a\nb" }},
		{"boot id of this node is 0", func(c *Config) { c.Member.Boot = 0 }},
		{`peer address "nowhere"`, func(c *Config) { c.Member.PeerAddr = "nowhere" }},
		{"bytes too long together", func(c *Config) {
			c.Member.HTTPAddr = strings.Repeat("x", 500)
		}},
		{"state 9", func(c *Config) { c.Member.State = 9 }},
		{"cannot start as active", func(c *Config) {
			c.Member.State = cluster.StateActive
			c.Join = []string{"a:1"}
		}},
		{"--cluster", func(c *Config) { c.Cluster = "" }},
		{"--cluster", func(c *Config) { c.Cluster = strings.Repeat("x", 256) }},
		{"key 2 of 2 has 6 bytes", func(c *Config) {
			c.Keys = [][]byte{make([]byte, 32), []byte("secret")}
		}},
		{`"127.0.0.1" to bind is not host:port`, func(c *Config) { c.Bind = "127.0.0.1" }},
		{`"127.0.0.1:x" to bind`, func(c *Config) { c.Bind = "127.0.0.1:x" }},
		{"no such host", func(c *Config) { c.Bind = "unknown.test:1" }},
		{"--advertise", func(c *Config) { c.Bind = "[::]:1" }},
		{`"127.0.0.1:0" to advertise`, func(c *Config) { c.Advertise = "127.0.0.1:0" }},
		{`"unknown.test" to advertise`, func(c *Config) { c.Advertise = "unknown.test" }},
		{`seed 2 of 2, "b"`, func(c *Config) { c.Join = []string{"a:1", "b"} }},
	} {
		c := Config{
			Member:   cluster.Member{ID: "a", Boot: 1, PeerAddr: "127.0.0.1:1"},
			Bind:     "127.0.0.1:0",
			Cluster:  "test",
			Resolver: &book{},
			OnView:   func(*cluster.View) { t.Errorf("%s: started", row.want) },
		}
		row.change(&c)
		g, err := Start(t.Context(), c)
		if g != nil || err == nil || !strings.Contains(err.Error(), row.want) ||
			strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("want an error with %q: %v", row.want, err)
		}
	}
}

// The promise: somebody misses a piece of news less than once in a thousand times. Each of seven
// nodes that has heard it passes it on to three others that it draws, and again, until it has done
// so as often as the library is told to.
func TestNewsArePassedOnOftenEnough(t *testing.T) {
	_, conf, err := prepare(t.Context(), Config{
		Member: cluster.Member{ID: "a", Boot: 1, PeerAddr: "127.0.0.1:1"}, Cluster: "test",
		Bind: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	const nodes, times = 7, 10_000
	missed := 0
	dice := rand.New(rand.NewPCG(1, 1))
	for range times {
		heard := []int{0} // in the order in which they hear of it
		for k := 0; k < len(heard); k++ {
			for sent := 0; sent < conf.RetransmitMult; {
				for _, to := range dice.Perm(nodes - 1)[:min(conf.GossipNodes,
					conf.RetransmitMult-sent)] {
					if to >= heard[k] {
						to++
					}
					if sent++; !slices.Contains(heard, to) {
						heard = append(heard, to)
					}
				}
			}
		}
		if len(heard) < nodes {
			missed++
		}
	}
	if missed > times/1000 {
		t.Errorf("in %d of %d cases somebody has missed it", missed, times)
	}
}

// The promise: the library gets literal addresses, the ones that were meant. (It takes a name for
// "all interfaces".)
func TestAddresses(t *testing.T) {
	names := &book{}
	names.set("node.test", "fd00::1%eth0", "10.0.0.1")
	names.set("six.test", "fd00::6")
	for _, row := range []struct{ bind, advertise, want string }{
		{"127.0.0.1:7946", "", "bind 127.0.0.1 7946, advertise  7946"},
		{"node.test:7946", "", "bind 10.0.0.1 7946, advertise  7946"},
		{"six.test:7946", "", "bind fd00::6 7946, advertise  7946"},
		{":7946", "node.test", "bind 0.0.0.0 7946, advertise 10.0.0.1 7946"},
		{"[::]:7946", "six.test:8946", "bind :: 7946, advertise fd00::6 8946"},
		{"127.0.0.1:7946", "[::1]:8946", "bind 127.0.0.1 7946, advertise ::1 8946"},
	} {
		c := Config{
			Member: cluster.Member{ID: "a", Boot: 1, PeerAddr: "127.0.0.1:1"}, Cluster: "test",
			Resolver: names,
			Bind:     row.bind, Advertise: row.advertise,
		}
		g, conf, err := prepare(t.Context(), c)
		if err != nil {
			t.Errorf("%s: %v", row.bind, err)
			continue
		}
		g.stop()
		got := fmt.Sprintf("bind %s %d, advertise %s %d", conf.BindAddr, conf.BindPort,
			conf.AdvertiseAddr, conf.AdvertisePort)
		if got != row.want {
			t.Errorf("%s by %q: %s; want %s", row.bind, row.advertise, got, row.want)
		}
		if own := g.ownAddrs(); row.bind == ":7946" && !own["127.0.0.1:7946"] {
			t.Errorf("bound to all interfaces, but 127.0.0.1 is not one of its own: %v", own)
		}
	}
}

// The promise: members that never come back do not add up: at most so many are looked for, each for
// a day.
func TestLostMembersAreForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		r, err := newRoster(cluster.Member{ID: "a", Boot: 1}, "", time.Now(), func() {})
		if err != nil {
			t.Fatal(err)
		}
		for i := range maxLost + 10 {
			time.Sleep(time.Second)
			record, err := meta{boot: 1, algorithm: algorithm}.encode()
			if err != nil {
				t.Fatal(err)
			}
			n := &memberlist.Node{
				Name: nodeName(fmt.Sprint("n", i), 1),
				Addr: net.IPv4(10, 0, 0, 1), Port: uint16(i), Meta: record,
			}
			r.NotifyJoin(n)
			r.NotifyLeave(n)
		}
		lost := r.missing(10 * maxLost)
		if len(lost) != maxLost || slices.Contains(lost, "10.0.0.1:9") ||
			!slices.Contains(lost, "10.0.0.1:10") {
			t.Errorf("%d are looked for, not the last %d", len(lost), maxLost)
		}
		if few := r.missing(3); len(few) != 3 {
			t.Errorf("%d of at most 3 are looked for in a round", len(few))
		}
		time.Sleep(mourned - time.Minute)
		if n := len(r.missing(10 * maxLost)); n >= maxLost || n == 0 {
			t.Errorf("%d are looked for while the day ends", n)
		}
		time.Sleep(time.Hour)
		if n := len(r.missing(10 * maxLost)); n != 0 {
			t.Errorf("%d are looked for after a day", n)
		}
	})
}

// The promise: no key is ever logged, at any level.
func TestKeysAreNotLogged(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var lines lockedBuilder
		key := []byte("0123456789abcdefTHE-GOSSIP-KEY!!")
		keyed := func(c *Config) {
			c.Keys = [][]byte{key}
			c.Logger = slog.New(slog.NewTextHandler(&lines,
				&slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		w := newWire()
		a := start(t, w, "a", 1, keyed)
		b := start(t, w, "b", 2, func(c *Config) { keyed(c); join(1)(c) })
		start(t, w, "x", 3, join(1))
		agree(t, "a b", a, b)
		time.Sleep(10 * time.Second)
		text := lines.String()
		if !strings.Contains(text, "from=memberlist") || !strings.Contains(text, "msg=view") {
			t.Errorf("the log has no lines of both: %s", text)
		}
		for _, form := range []string{
			string(key), fmt.Sprintf("%x", key), fmt.Sprint(key),
			"MDEyMzQ1",
		} {
			if strings.Contains(text, form) {
				t.Errorf("the log has the key as %s", form)
			}
		}
	})
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
