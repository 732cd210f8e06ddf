package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/cluster/breaker"
	"penstock/cluster/dedup"
	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// world is a few nodes in one goroutine, members of one cluster: a call is a function call, time
// moves only when a test says so.
type world struct {
	t      testing.TB
	now    limiter.Instant
	nodes  map[string]*Node
	table  limiter.TableConfig // of each node
	limits Limits              // of each node, as it is made
	calls  int
	// caller makes the call that meet is asked about.
	caller string
	// electors are how many nodes found a cluster together; 0: no one founds one, all that come
	// enter.
	electors int
	// nodes that were stopped: what is due for them waits, and they do not answer
	frozen map[string]bool
	// meet is asked what happens to each call; nil means that it arrives. It may deliver by itself
	// and set the call's fields.
	meet func(c *Call, deliver func() *Answer)
	due  []*timer // in the order in which they were set
}

type timer struct {
	at   limiter.Instant
	of   string // node, or empty
	f    func()
	stop bool
}

// hands are a node's: its clock and its network.
type hands struct {
	*world
	id string
}

func (h hands) AfterFunc(d time.Duration, f func()) func() { return h.after(h.id, d, f) }

func (h hands) Call(calls []Call) { h.call(h.id, calls) }

func (w *world) Now() limiter.Instant { return w.now }

func (w *world) AfterFunc(d time.Duration, f func()) func() { return w.after("", d, f) }

func (w *world) after(id string, d time.Duration, f func()) func() {
	x := &timer{at: w.now.Add(d), of: id, f: f}
	w.due = append(w.due, x)
	return func() { x.stop = true }
}

// freeze stops the process of a node, until it is thawed.
func (w *world) freeze(id string) { w.frozen[id] = true }

func (w *world) thaw(id string) { delete(w.frozen, id) }

// Wait lets time pass until then, and everything happen that is due.
func (w *world) Wait(until limiter.Instant) {
	for {
		var next *timer
		for _, x := range w.due {
			if !x.stop && !w.frozen[x.of] && x.at <= until && (next == nil || x.at < next.at) {
				next = x
			}
		}
		if next == nil {
			w.now = max(w.now, until)
			return
		}
		next.stop = true
		w.now = max(w.now, next.at)
		next.f()
	}
}

// settle lets all happen that is due now: claims and gifts.
func (w *world) settle() { w.Wait(w.now) }

func (w *world) Call(calls []Call) { w.call("", calls) }

func (w *world) call(caller string, calls []Call) {
	for i := range calls {
		c := &calls[i]
		w.caller = caller
		if len(c.Ask.Items) > 0 {
			w.calls++
		}
		deliver := func() *Answer { return w.nodes[c.To.ID].Deliver(c.Ask) }
		switch {
		case w.frozen[c.To.ID] || w.frozen[caller]:
			c.Err = errSilent
		case w.meet != nil:
			w.meet(c, deliver)
		// No process listens there, or another one does.
		case w.nodes[c.To.ID] == nil || w.nodes[c.To.ID].Boot() != c.To.Boot:
			c.Err = errors.Join(ErrUnsent, ErrGone)
		default:
			c.Answer = deliver()
		}
	}
}

// newWorld makes nodes n1 … nk that see each other, with the limits of specs.
func newWorld(t testing.TB, k int, specs ...limiter.Spec) *world {
	return newWorldOf(t, limiter.TableConfig{Bytes: 4 << 20}, k, specs...)
}

// newAlone makes a node n1 that is given its View, and agrees with nobody.
func newAlone(t testing.TB, specs ...limiter.Spec) *world {
	w := emptyWorld(t, limiter.TableConfig{Bytes: 4 << 20}, specs...)
	w.create("n1", 1)
	w.nodes["n1"].SetView(w.view("n1", w.members(1)))
	w.nodes["n1"].Start()
	w.settle()
	return w
}

func newWorldOf(t testing.TB, table limiter.TableConfig, k int, specs ...limiter.Spec) *world {
	w := emptyWorld(t, table, specs...)
	for i := range k {
		w.create(fmt.Sprintf("n%d", i+1), uint64(i+1))
	}
	w.found()
	for i := range k {
		id := fmt.Sprintf("n%d", i+1)
		w.nodes[id].SetView(w.view(id, w.members(k)))
		w.nodes[id].Start()
	}
	w.Wait(w.now.Add(founding))
	return w
}

func emptyWorld(t testing.TB, table limiter.TableConfig, specs ...limiter.Spec) *world {
	w := &world{
		t: t, now: 1_700_000_000_000_000_000, nodes: map[string]*Node{}, frozen: map[string]bool{},
		table: table, limits: Limits{},
	}
	for _, s := range specs {
		l, err := limiter.New(s)
		if err != nil {
			t.Fatal(err)
		}
		w.limits[s.Name] = l
	}
	return w
}

// create makes a node that knows nobody.
func (w *world) create(id string, boot uint64) *Node {
	w.t.Helper()
	n, err := New(Config{
		ID: id, Boot: boot, Clock: hands{w, id}, Network: hands{w, id},
		Table: limiter.NewTable(w.table),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	n.SetLimits(w.limits)
	w.nodes[id] = n
	return n
}

// founding is how long the members of a new world have to get their rights and take what is theirs.
const founding = 100 * time.Millisecond

// found has the nodes be members of a cluster that has been there for long.
func (w *world) found() {
	var members []ownership.Member
	for id, n := range w.nodes {
		members = append(members, ownership.Member{ID: id, Boot: ownership.Boot(n.Boot())})
	}
	first := ownership.First(members)
	for _, n := range w.nodes {
		n.Membership().AgreeWithin(first)
	}
}

func (w *world) members(k int) (ms []Member) {
	for i := 1; i <= k; i++ {
		ms = append(ms, Member{
			ID: fmt.Sprintf("n%d", i), Boot: uint64(i), State: StateActive,
			Features: FeatureHolds,
		})
	}
	return ms
}

func (w *world) view(self string, ms []Member) *View {
	w.t.Helper()
	v, err := NewView(self, ms)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// key returns a key that owner owns in the view of everybody, the i-th of them.
func (w *world) key(owner string, i int) string {
	v := w.nodes[owner].View()
	for k := 0; ; k++ {
		key := fmt.Sprintf("key-%d", k)
		if v.Owns(limiter.Hash(key)) {
			if i == 0 {
				return key
			}
			i--
		}
	}
}

// take asks node for one unit of limit for key.
func (w *world) take(node, limit, key string) Decision {
	w.t.Helper()
	return w.check(node, Item{Limit: limit, Key: key, Cost: 1})[0]
}

func (w *world) check(node string, items ...Item) []Decision {
	w.t.Helper()
	out := make([]Decision, len(items))
	if err := w.nodes[node].Check(&Request{Items: items}, out); err != nil {
		w.t.Fatalf("check at %s: %v", node, err)
	}
	return out
}

// remaining is what the owner has left for key, without touching it.
func (w *world) remaining(owner, limit, key string) int64 {
	w.t.Helper()
	return w.check(owner, Item{Limit: limit, Key: key, Op: OpPeek})[0].Remaining
}

var five = limiter.Spec{
	Name: "five", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
	Limit: 5, Per: time.Minute,
}

// Promise: healthy cluster, any entry node: 0 extra, every charge counted exactly once.
func TestOneLimitWhicheverNodeIsAsked(t *testing.T) {
	w := newWorld(t, 3, five)
	for _, owner := range []string{"n1", "n2", "n3"} {
		key := w.key(owner, 0)
		allowed := 0
		for i := range 15 {
			entry := fmt.Sprintf("n%d", i%3+1)
			d := w.take(entry, "five", key)
			if d.Allowed {
				allowed++
			}
			want := SourceForwarded
			if entry == owner {
				want = SourceOwner
			} else if i >= 11 { // denied for the third time at this node: it asks no more
				want = SourceDenied
			}
			if d.Owner != owner || d.Source != want || d.Degraded {
				t.Errorf("%s asked for %s's key: owner %s, source %s, degraded %t", entry, owner,
					d.Owner, d.Source, d.Degraded)
			}
		}
		if allowed != 5 {
			t.Errorf("%s's key: admitted %d of 15, limit is 5", owner, allowed)
		}
	}
}

func TestBatchIsOneCallPerOwner(t *testing.T) {
	w := newWorld(t, 3, five)
	var items []Item
	for _, owner := range []string{"n1", "n2", "n3"} {
		for i := range 4 {
			items = append(items, Item{Limit: "five", Key: w.key(owner, i), Cost: int64(i)})
		}
	}
	for i, d := range w.check("n1", items...) {
		if want := 5 - int64(i%4); !d.Allowed || d.Remaining != want ||
			d.Owner != fmt.Sprintf("n%d", i/4+1) {
			t.Errorf("item %d: allowed %t, remaining %d (want %d), owner %s", i, d.Allowed,
				d.Remaining, want, d.Owner)
		}
	}
	if w.calls != 2 {
		t.Errorf("%d calls for 12 items of 3 owners, one of them the asker; want 2", w.calls)
	}
}

// Promise: a request delivered twice or retried: 0 extra charges.
func TestRepeatIsChargedOnce(t *testing.T) {
	w := newWorld(t, 2, five)
	key := w.key("n2", 0)

	t.Run("the network doubles a frame", func(t *testing.T) {
		w.meet = func(c *Call, deliver func() *Answer) { deliver(); c.Answer = deliver() }
		if d := w.take("n1", "five", key); !d.Allowed || d.Remaining != 4 {
			t.Errorf("allowed %t, remaining %d; want true, 4", d.Allowed, d.Remaining)
		}
	})
	t.Run("an answer gets lost and the asker asks again", func(t *testing.T) {
		w.meet = func(c *Call, deliver func() *Answer) {
			if c.Answer = deliver(); c.Ask.Hop == 1 {
				c.Answer, c.Err = nil, errors.New("lost on the way back")
			}
		}
		if d := w.take("n1", "five", key); !d.Allowed || d.Remaining != 3 ||
			d.Source != SourceForwarded {
			t.Errorf("allowed %t, remaining %d, source %s; want true, 3, forwarded", d.Allowed,
				d.Remaining, d.Source)
		}
	})
	w.meet = nil
	t.Run("a client repeats its request at another node", func(t *testing.T) {
		for _, node := range []string{"n1", "n2", "n1"} {
			d := w.check(node,
				Item{Limit: "five", Key: key, Cost: 1, ID: ID{Origin: 77, Sequence: 1}})[0]
			if !d.Allowed || d.Remaining != 2 {
				t.Errorf("at %s: allowed %t, remaining %d; want true, 2", node, d.Allowed,
					d.Remaining)
			}
		}
	})
	t.Run("the network doubles a reset and the take after it", func(t *testing.T) {
		w.meet = func(c *Call, deliver func() *Answer) { deliver(); c.Answer = deliver() }
		w.check("n1", Item{Limit: "five", Key: key, Op: OpReset},
			Item{Limit: "five", Key: key, Cost: 3})
		w.meet = nil
		if left := w.remaining("n2", "five", key); left != 2 {
			t.Errorf("%d left, want 2: the second reset must not forget the take", left)
		}
	})
	t.Run("two seconds later it is another request", func(t *testing.T) {
		w.Wait(w.now.Add(dedup.Lasts))
		if d := w.check("n1", Item{
			Limit: "five", Key: key, Cost: 1,
			ID: ID{Origin: 77, Sequence: 1},
		})[0]; d.Remaining != 1 {
			t.Errorf("remaining %d, want 1", d.Remaining)
		}
	})
	t.Run("a client cannot pass for a node", func(t *testing.T) {
		forged := ID{Origin: 1 | nodeOrigin, Sequence: w.nodes["n1"].sequence.Load() + 1}
		other := w.key("n2", 1)
		w.check("n2", Item{Limit: "five", Key: other, Cost: 2, ID: forged})
		if d := w.take("n1", "five", key); d.Limit != 5 || d.Remaining != 0 || !d.Allowed {
			t.Errorf("answered from the forged take: %+v", d)
		}
	})
}

// Promise: no more is admitted than the limit says. What may have been given back is not given back
// once more by a node that does not remember it: neither by another one, nor by the one that asked,
// and not together with other items either. A refund that was not sent is given back elsewhere.
func TestWhatIsGivenBackIsNotGivenBackTwice(t *testing.T) {
	lost, unsent := errors.New("lost on the way back"), fmt.Errorf("%w: there is no way", ErrUnsent)
	for _, c := range []struct {
		name    string
		items   []Item
		err     error
		decides string
	}{
		{"a refund", []Item{{Cost: -2}}, lost, ""},
		{"a reset", []Item{{Op: OpReset}}, lost, ""},
		{"a refund with others", []Item{{Cost: 1}, {Cost: -2}}, lost, ""},
		{"a take", []Item{{Cost: 2}}, lost, "n2"},
		{"a refund that was not sent", []Item{{Cost: -2}}, unsent, "n2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3, five)
			key := w.key("n3", 0)
			for i := range c.items {
				c.items[i].Limit, c.items[i].Key = "five", key
			}
			w.meet = func(call *Call, deliver func() *Answer) {
				switch {
				case len(call.Ask.Items) == 0:
					call.Answer = deliver()
				case call.To.ID == "n3" && call.Ask.Hop == 1:
					call.Err = c.err
				default: // n3 has given the key to n2 meanwhile
					call.Answer = &Answer{}
					for range call.Ask.Items {
						a := AnswerItem{Status: StatusNotOwner, Owner: "n2"}
						if call.To.ID == "n2" {
							a = AnswerItem{
								Status: StatusDone, Decision: limiter.Decision{Allowed: true},
							}
						}
						call.Answer.Items = append(call.Answer.Items, a)
					}
				}
			}
			out := make([]Decision, len(c.items))
			r := Request{Items: c.items, Atomic: len(c.items) > 1}
			if err := w.nodes["n1"].Check(&r, out); err != nil {
				t.Fatal(err)
			}
			for i := range out {
				by := out[i].Owner
				if out[i].Source == SourceFallback {
					by = ""
				}
				if by != c.decides {
					t.Errorf("item %d: %q has decided, want %q", i, by, c.decides)
				}
			}
		})
	}
}

// Promise: … nor by a member that was to ask the silent owner for it, and remembers nothing.
func TestWhatIsGivenBackIsNotRelayedTwice(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n3", 0)
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.To.ID == "n3" {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	for range 20 {
		w.take("n1", "five", key)
	}
	relayed, lost := 0, w.meet
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Items) == 0 || w.caller != "n1" || c.To.ID == "n3" ||
			c.Ask.Items[0].Cost > 0 {
			lost(c, deliver)
			return
		}
		if c.Ask.Relay {
			relayed++
		}
		c.Err = errors.New("lost on the way back")
	}
	d := w.check("n1", Item{Limit: "five", Key: key, Cost: -2})[0]
	if relayed != 1 || !d.Degraded {
		t.Errorf("a member was asked to relay it %d times, want 1; answered: %+v", relayed, d)
	}
}

// Two peers that name each other end in a fallback, not in a loop.
func TestPeersThatNameEachOther(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n3", 0)
	w.calls = 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Items) == 0 {
			c.Answer = deliver()
			return
		}
		other := map[string]string{"n2": "n3", "n3": "n2"}[c.To.ID]
		c.Answer = &Answer{Items: []AnswerItem{{Status: StatusNotOwner, Owner: other}}}
	}
	if d := w.take("n1", "five", key); d.Source != SourceFallback || !d.Degraded {
		t.Errorf("source %s, degraded %t; want fallback, true", d.Source, d.Degraded)
	}
	if w.calls <= 2 || w.calls > maxHop {
		t.Errorf("%d calls, want some, and at most %d", w.calls, maxHop)
	}
}

// Promise: no request fails while nodes come and go, nor is decided without its owner, wherever the
// owner is and however far away. Two nodes that name each other leave time to ask the others, and a
// node that one of those names is asked next.
func TestAskersLeaveACircle(t *testing.T) {
	for _, rtt := range []time.Duration{time.Millisecond, 35 * time.Millisecond} {
		for _, decides := range []string{"n4", "n5"} {
			for _, first := range []string{"n2", "n3"} {
				w := newWorld(t, 5, five)
				names := map[string]string{"n2": "n3", "n3": "n2", "n4": decides, "n5": decides}
				asked, said := 0, ""
				w.meet = func(c *Call, deliver func() *Answer) {
					if len(c.Ask.Items) == 0 {
						c.Answer = deliver()
						return
					}
					if said != "" && c.To.ID != said {
						t.Errorf("%v: %s was said to decide, and %s is asked", rtt, said, c.To.ID)
					}
					asked++
					said = ""
					w.pass(rtt)
					if c.To.ID == decides {
						c.Answer = &Answer{Items: []AnswerItem{{
							Status:   StatusDone,
							Decision: limiter.Decision{Allowed: true},
						}}}
						return
					}
					if c.To.ID > "n3" {
						said = decides
					}
					c.Answer = &Answer{Items: []AnswerItem{{
						Status: StatusNotOwner,
						Owner:  names[c.To.ID],
					}}}
				}
				if d := w.take("n1", "five", w.key(first, 0)); d.Degraded || d.Owner != decides {
					t.Errorf("%v, %s decides, %s is asked first: %s, degraded %t after %d sends",
						rtt, decides, first, d.Source, d.Degraded, asked)
				} else if rtt > circling && asked > 5 {
					t.Errorf("%v, %s decides, %s is asked first: %d sends", rtt, decides, first,
						asked)
				}
			}
		}
	}
}

// Promise: no request fails while nodes come and go, nor is decided without its owner. Of two nodes
// that name each other one gets the key after the others were asked; these have old news and lead
// back to the two. Three may name each other in turn, and a fourth have the key.
func TestAskersComeBackToACircle(t *testing.T) {
	for _, names := range []map[string]string{
		{"n2": "n3", "n3": "n2", "n4": "n2", "n5": "n2"},
		{"n2": "n3", "n3": "n2", "n4": "n3", "n5": "n3"},
		{"n2": "n3", "n3": "n4", "n4": "n2", "n5": "n5"},
		{"n2": "n3", "n3": "n2", "n4": "n4", "n5": "n2", "n6": "n2"},
		{"n2": "n3", "n3": "n2", "n4": "n2", "n5": "n5", "n6": "n3"},
		{"n2": "n3", "n3": "n2", "n4": "n2", "n5": "n2", "n6": "n6"},
	} {
		knows := func(id string) bool { return names[id] == id }
		for _, first := range []string{"n2", "n3"} {
			for _, decides := range []string{"n2", "n3", "n4", "n5", "n6"} {
				if slices.ContainsFunc([]string{"n4", "n5", "n6"}, knows) != knows(decides) ||
					decides > "n3" && !knows(decides) {
					continue
				}
				w := newWorld(t, len(names)+1, five)
				asked := 0
				w.meet = func(c *Call, deliver func() *Answer) {
					if len(c.Ask.Items) == 0 {
						c.Answer = deliver()
						return
					}
					asked++
					w.pass(time.Millisecond)
					a := AnswerItem{Status: StatusNotOwner, Owner: names[c.To.ID]}
					if c.To.ID == decides && asked > inCircles {
						a = AnswerItem{
							Status: StatusDone, Decision: limiter.Decision{Allowed: true},
						}
					}
					c.Answer = &Answer{Items: []AnswerItem{a}}
				}
				if d := w.take("n1", "five", w.key(first, 0)); d.Degraded || d.Owner != decides {
					t.Errorf("%v, %s decides, %s is asked first: %s, degraded %t after %d sends",
						names, decides, first, d.Source, d.Degraded, asked)
				}
			}
		}
	}
}

// Promise: no request fails while nodes come and go, nor is decided without its owner. A node that
// has got the key meanwhile is asked as soon as another one names it: it is no circle if one of the
// two named nobody before, nor is there time for others where answers take long, or once more where
// they take a while.
func TestAskersFollowWhoIsNamed(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []string // the nodes that are named, answer by answer
		takes   func(send int) time.Duration
		decides string
	}{
		{
			"who named nobody at first",
			[]string{"", "n2", "n5", "n2"},
			func(int) time.Duration { return 15 * time.Millisecond }, "n2",
		},
		{"far away", []string{"n3", "n2", "n3", "n2", "n3", "n2"}, func(send int) time.Duration {
			if send == 6 {
				return farAway
			}
			return time.Millisecond
		}, "n2"},
		{
			"who has got it while others were asked",
			[]string{"n3", "n2", "n3", "n3", "n2", "n3"},
			func(int) time.Duration { return 15 * time.Millisecond }, "n3",
		},
	} {
		w := newWorld(t, 5, five)
		var asked []string
		w.meet = func(call *Call, deliver func() *Answer) {
			if len(call.Ask.Items) == 0 {
				call.Answer = deliver()
				return
			}
			asked = append(asked, call.To.ID)
			w.pass(c.takes(len(asked)))
			if len(asked) <= len(c.answers) {
				call.Answer = &Answer{Items: []AnswerItem{{
					Status: StatusNotOwner,
					Owner:  c.answers[len(asked)-1],
				}}}
			} else {
				call.Answer = &Answer{Items: []AnswerItem{{
					Status:   StatusDone,
					Decision: limiter.Decision{Allowed: true},
				}}}
			}
		}
		if d := w.take("n1", "five", w.key("n2", 0)); d.Degraded || d.Owner != c.decides {
			t.Errorf("%s: %s is asked last, of %v", c.name, d.Owner, asked)
		}
	}
}

// Promise: nodes that leave, no request failed. A node that was said to hold a key, and is gone, is
// named no more: the owner is.
func TestWhoIsGoneIsNotNamed(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n1, key := w.nodes["n1"], w.key("n2", 0)
	n1.parts.list[ring.Partition(limiter.Hash(key))].hint = "n3"
	named := func() string {
		return n1.Deliver(&Ask{
			Hop: 1, Deadline: w.now.Add(time.Second),
			Items: []AskItem{{Limit: n1.Limits()["five"], Key: key}},
		}).Items[0].Owner
	}
	if got := named(); got != "n3" {
		t.Fatalf("names %q, and was told of n3", got)
	}
	w.kill("n3")
	w.pass(time.Second)
	if got := named(); got != "n2" {
		t.Errorf("names %q when n3 is gone", got)
	}
}

func TestPeerServesOnlyWhatItOwns(t *testing.T) {
	w := newWorld(t, 2, five)
	l := w.nodes["n1"].Limits()["five"]
	ask := func(hop uint8, deadline time.Duration) *Ask {
		return &Ask{Hop: hop, Deadline: w.now.Add(deadline), Items: []AskItem{
			{Limit: l, Key: w.key("n1", 0), Cost: 1}, {Limit: l, Key: w.key("n2", 0), Cost: 1},
		}}
	}
	for _, c := range []struct {
		name string
		ask  *Ask
		want [2]Status
	}{
		{"its own key and another's", ask(1, time.Second), [2]Status{StatusDone, StatusNotOwner}},
		{"sent on too often", ask(maxHop+1, time.Second), [2]Status{StatusRefused, StatusRefused}},
		{"too late", ask(1, 0), [2]Status{StatusExpired, StatusExpired}},
	} {
		before := w.remaining("n1", "five", w.key("n1", 0))
		a := w.nodes["n1"].Deliver(c.ask)
		for i, want := range c.want {
			if got := a.Items[i]; got.Status != want {
				t.Errorf("%s: item %d: status %d, want %d", c.name, i, got.Status, want)
			} else if want == StatusNotOwner && got.Owner != "n2" {
				t.Errorf("%s: names %q as owner, want n2", c.name, got.Owner)
			}
		}
		charged := before - w.remaining("n1", "five", w.key("n1", 0))
		if want := int64(0); (c.want[0] == StatusDone) != (charged == 1) {
			t.Errorf("%s: charged %d, want %d", c.name, charged, want)
		}
	}
}

// Promise: when nobody answers, the limit's on_error decides, and every such decision says so with
// its bound.
func TestOnError(t *testing.T) {
	spec := func(name string, e limiter.OnError) limiter.Spec {
		s := five
		s.Name, s.OnError, s.Limit = name, e, 9
		return s
	}
	single := spec("single",
		limiter.ErrorLocal) // a share cannot be less than one unit, so three of them add up to 3
	single.Limit = 1
	w := newWorld(t, 3, spec("local", limiter.ErrorLocal), single,
		spec("allow", limiter.ErrorAllow), spec("deny", limiter.ErrorDeny))
	key := w.key("n2", 0)
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.To.ID == "n2" {
			c.Err = fmt.Errorf("%w: there is no way", ErrUnsent)
		} else {
			c.Answer = deliver()
		}
	}
	for _, c := range []struct {
		limit   string
		allowed int
		bound   int64
	}{{"local", 3, 9}, {"single", 1, 3}, {"allow", 20, Unbounded}, {"deny", 0, 0}} {
		allowed := 0
		for range 20 {
			d := w.take("n1", c.limit, key)
			if d.Allowed {
				allowed++
			}
			if !d.Degraded || d.Source != SourceFallback || d.Bound != c.bound || d.Owner != "n2" {
				t.Fatalf("%s: degraded %t, source %s, bound %d, owner %s", c.limit, d.Degraded,
					d.Source, d.Bound, d.Owner)
			}
		}
		if allowed != c.allowed {
			t.Errorf("on_error %s: admitted %d of 20, want %d", c.limit, allowed, c.allowed)
		}
	}
	w.meet = nil
	w.Wait(w.now.Add(breaker.MaxPause))
	if d := w.take("n1", "local", key); d.Degraded || d.Remaining != 9-3-1 {
		t.Errorf("owner is back: degraded %t, remaining %d; want false, 5: "+
			"it has heard of three that a share admitted", d.Degraded, d.Remaining)
	}
}

// Promise: an answer without a mark is the owner's. A node that decided a take from its share, and
// is the owner when the take is repeated, says that this was its share.
func TestWhatAShareSaidStaysMarked(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	key, k := "", 0
	for v := w.nodes["n1"].View(); key == "" ||
		v.Members[v.heir(ring.Partition(limiter.Hash(key)))].ID != "n1"; k++ {
		key = w.key("n2", k)
	}
	item := Item{Limit: "five", Key: key, Cost: 1, ID: ID{Origin: 7, Sequence: 1}}
	w.meet = func(c *Call,
		_ func() *Answer,
	) {
		c.Err = fmt.Errorf("%w: there is no way", ErrUnsent)
	}
	if d := w.check("n1", item)[0]; !d.Degraded || d.Limit != 1 || d.Remaining != 0 {
		t.Fatalf("the share, which is 1: %+v", d)
	}
	w.meet = nil
	w.pass(500 * time.Millisecond)
	w.kill("n2")
	w.pass(time.Second)
	if d := w.check("n1", item)[0]; d.Owner != "n1" || !d.Degraded || d.Bound != 5 ||
		d.Remaining != 0 {
		t.Errorf("the same take again: %+v; want it marked", d)
	}
	item.ID.Sequence++
	if d := w.check("n1", item)[0]; d.Owner != "n1" || d.Degraded || d.Remaining != 3 {
		t.Errorf("another take: %+v; want 3 of 5 left", d)
	}
}

func TestBreakerKeepsCallsAway(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	calls := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		switch {
		case c.To.ID != "n2":
			c.Answer = deliver()
			return
		case len(c.Ask.Items) > 0 &&
			w.caller == "n1": // the heir is asked to relay, and tries itself
			calls++
		}
		c.Err = errors.New("no answer")
	}
	for range 10 {
		w.take("n1", "five", key)
	}
	if calls != breaker.Trips {
		t.Errorf("%d calls to a silent peer, want %d", calls, breaker.Trips)
	}
	if got := w.nodes["n1"].Unreachable(); len(got) != 1 || got[0] != "n2" {
		t.Errorf("unreachable: %v, want [n2]", got)
	}
	w.nodes["n1"].SetView(w.view("n1",
		w.members(3))) // the same peers: what is known of them stays known
	w.take("n1", "five", key)
	if calls != breaker.Trips {
		t.Errorf("%d calls after a new view, want %d", calls, breaker.Trips)
	}
	w.now = w.now.Add(breaker.Pause) // and no tick meanwhile: its probe would be the one call
	w.take("n1", "five", key)
	w.take("n1", "five", key)
	if calls != breaker.Trips+1 {
		t.Errorf("%d calls after one pause, want %d", calls, breaker.Trips+1)
	}
	w.meet = nil
	w.now = w.now.Add(200 * time.Millisecond)
	if d := w.take("n1", "five", key); d.Source != SourceForwarded {
		t.Errorf("the peer is back, and the decision comes from %s", d.Source)
	}
	if d := w.take("n1", "five", key); d.Source != SourceForwarded {
		t.Errorf("the breaker did not close: decision comes from %s", d.Source)
	}
}

func TestNoCallOutlivesTheDeadline(t *testing.T) {
	w := newWorld(t, 2, five)
	key := w.key("n2", 0)
	end := w.now.Add(100 * time.Millisecond)
	w.meet = func(c *Call, deliver func() *Answer) {
		if len(c.Ask.Items) == 0 {
			c.Answer = deliver()
			return
		}
		if c.Deadline >= end {
			t.Errorf("a call may last until %v after the request's deadline",
				time.Duration(c.Deadline-end))
		}
		w.now = c.Deadline
		c.Err = errors.New("no answer in time")
	}
	out := make([]Decision, 1)
	r := &Request{Deadline: end, Items: []Item{{Limit: "five", Key: key, Cost: 1}}}
	if err := w.nodes["n1"].Check(r, out); err != nil || !out[0].Degraded {
		t.Errorf("err %v, degraded %t; want a fallback before the deadline", err, out[0].Degraded)
	}
	w.now = end
	if err := w.nodes["n1"].Check(r, out); !errors.Is(err, ErrExpired) {
		t.Errorf("at the deadline: %v, want ErrExpired", err)
	}
}

func TestAtomicChargesAllOrNone(t *testing.T) {
	ten := limiter.Spec{Name: "ten", Algorithm: limiter.GCRA, Limit: 10, Per: time.Hour}
	w := newWorld(t, 2, five, ten)
	atomic := func(node string, items ...Item) ([]Decision, error) {
		out := make([]Decision, len(items))
		err := w.nodes[node].Check(&Request{Items: items, Atomic: true}, out)
		return out, err
	}
	for _, node := range []string{"n1", "n2"} { // the owner, and a forwarder
		key := w.key("n1", map[string]int{"n1": 0, "n2": 1}[node])
		for i := range 7 {
			out, err := atomic(node, Item{Limit: "five", Key: key, Cost: 1},
				Item{Limit: "ten", Key: key, Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := out[0].Allowed, i < 5; got != want {
				t.Errorf("at %s, request %d: allowed %t, want %t", node, i, got, want)
			}
		}
		if left := w.remaining("n1", "ten", key); left != 5 {
			t.Errorf("asked at %s: refused requests burnt the other limit: %d left of 10, want 5",
				node, left)
		}
	}
}

func TestAtomicRepeatIsChargedOnce(t *testing.T) {
	w := newWorld(t, 2, five)
	key := w.key("n2", 0)
	w.meet = func(c *Call, deliver func() *Answer) { deliver(); c.Answer = deliver() }
	out := make([]Decision, 2)
	items := []Item{{Limit: "five", Key: key, Cost: 1}, {Limit: "five", Key: key, Cost: 1}}
	if err := w.nodes["n1"].Check(&Request{Items: items, Atomic: true}, out); err != nil {
		t.Fatal(err)
	}
	if out[1].Remaining != 3 || w.remaining("n2", "five", key) != 3 {
		t.Errorf("remaining %d and %d, want 3 and 3", out[1].Remaining,
			w.remaining("n2", "five", key))
	}
}

// Promise: hostile or malformed input gets a clear error that names the field, and nothing is
// charged.
func TestBadInput(t *testing.T) {
	w := newWorld(t, 2, five)
	inline := func(name string) *limiter.Limit {
		s := five
		s.Name = name
		l, err := limiter.New(s)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	good := Item{Limit: "five", Key: w.key("n1", 0), Cost: 1}
	long := make([]byte, MaxKey+1)
	for _, c := range []struct {
		name, field string
		items       []Item
	}{
		{"no items", "items", nil},
		{"1001 items", "items", make([]Item, MaxItems+1)},
		{"empty key", "items[1].key", []Item{good, {Limit: "five"}}},
		{"long key", "items[1].key", []Item{good, {Limit: "five", Key: string(long)}}},
		{"no limit", "items[1].limit", []Item{good, {Key: "k"}}},
		{
			"inline limit with a taken name", "items[1].inline.name",
			[]Item{good, {Key: "k", Inline: inline("five")}},
		},
	} {
		err := w.nodes["n1"].Check(&Request{Items: c.items}, make([]Decision, len(c.items)))
		var bad *InputError
		if !errors.As(err, &bad) || bad.Field != c.field {
			t.Errorf("%s: %v, want an InputError of %s", c.name, err, c.field)
		}
	}
	var unknown *UnknownLimitError
	err := w.nodes["n1"].Check(&Request{Items: []Item{good, {Limit: "six", Key: "k"}}},
		make([]Decision, 2))
	if !errors.As(err, &unknown) || unknown.Name != "six" || unknown.Item != 1 {
		t.Errorf("unknown limit: %v", err)
	}
	for _, still := range []bool{true, false} {
		w.nodes["n1"].AwaitLimits(still)
		err := w.nodes["n1"].Check(&Request{Items: []Item{{Limit: "six", Key: "k"}}},
			make([]Decision, 1))
		if !errors.As(err, &unknown) || unknown.Early != still {
			t.Errorf("unknown limit, while others are to come (%t): %v", still, err)
		}
	}
	// the error goes into headers of answers, so a long name is cut
	err = w.nodes["n1"].Check(&Request{Items: []Item{{
		Limit: strings.Repeat("\x00", 2<<20), Key: "k",
	}}}, make([]Decision, 1))
	if err == nil || len(err.Error()) > 1024 {
		t.Errorf("unknown limit with a long name: an error of %d bytes", len(fmt.Sprint(err)))
	}
	if left := w.remaining("n1", "five", good.Key); left != 5 {
		t.Errorf("a request in error charged its good item: %d left of 5", left)
	}
}

func TestShadowSaysYesAndCounts(t *testing.T) {
	dry, shadow := five, five
	dry.Name, dry.DryRun = "dry", true
	shadow.Name, shadow.OnDeny = "shadow", limiter.DenyShadow
	w := newWorld(t, 2, dry, shadow)
	for _, limit := range []string{"dry", "shadow"} {
		for _, owner := range []string{"n1", "n2"} {
			for i := range 7 {
				if d := w.take("n1", limit, w.key(owner, 0)); !d.Allowed || d.Shadow != (i >= 5) {
					t.Errorf("%s: request %d: allowed %t, shadow %t", limit, i, d.Allowed, d.Shadow)
				}
			}
		}
	}
}

// A limit that never denies must not make others fall that stand with it: the client would hear yes
// for all of them, and none would be charged.
func TestShadowHasNoSayInAtomic(t *testing.T) {
	dry := five
	dry.Name, dry.DryRun, dry.Limit = "dry", true, 1
	w := newWorld(t, 2, five, dry)
	admitted := func(key string) (n int) {
		for range 9 {
			out := make([]Decision, 2)
			items := []Item{{Limit: "five", Key: key, Cost: 1}, {Limit: "dry", Key: key, Cost: 1}}
			if err := w.nodes["n1"].Check(&Request{Items: items, Atomic: true}, out); err != nil {
				t.Fatal(err)
			}
			if out[0].Allowed && out[1].Allowed {
				n++
			}
		}
		return n
	}
	for _, owner := range []string{"n1", "n2"} {
		if n := admitted(w.key(owner, 0)); n != 5 {
			t.Errorf("owner %s: admitted %d of 9, the limit that denies is 5", owner, n)
		}
	}
	w.meet = func(c *Call, _ func() *Answer) { c.Err = ErrUnsent }
	if n := admitted(w.key("n2", 1)); n != 2 {
		t.Errorf("without the owner: admitted %d of 9, this node's share is 2", n)
	}
}

func TestPeekAndReset(t *testing.T) {
	w := newWorld(t, 2, five)
	for _, owner := range []string{"n1", "n2"} {
		key := w.key(owner, 0)
		w.check("n1", Item{Limit: "five", Key: key, Cost: 5})
		if d := w.check("n1", Item{Limit: "five", Key: key, Cost: 1, Op: OpPeek})[0]; d.Allowed ||
			d.Remaining != 0 {
			t.Errorf("peek of a spent key: %+v", d)
		}
		if d := w.check("n1", Item{Limit: "five", Key: key, Op: OpReset})[0]; !d.Allowed ||
			d.Remaining != 5 {
			t.Errorf("reset: %+v", d)
		}
		if left := w.remaining("n1", "five", key); left != 5 {
			t.Errorf("after the reset %d are left, want 5", left)
		}
	}
}

func TestAgentAsksAndOwnsNothing(t *testing.T) {
	w := newWorld(t, 1, five)
	ms := append(w.members(1), Member{ID: "n2", Boot: 2, Role: RoleAgent})
	agent, err := New(Config{
		ID: "n2", Boot: 2, Clock: w, Network: w,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	agent.SetLimits(w.nodes["n1"].Limits())
	w.nodes["n2"] = agent
	for id, n := range w.nodes {
		n.SetView(w.view(id, ms))
	}
	agent.Start()
	w.settle()
	for i := range 20 {
		if d := w.take("n2", "five", fmt.Sprintf("k%d", i)); d.Owner != "n1" ||
			d.Source != SourceForwarded {
			t.Errorf("owner %s, source %s; want n1, forwarded", d.Owner, d.Source)
		}
	}
	if !w.nodes["n2"].Ready() {
		t.Error("an agent of a cluster with members is not ready")
	}
}

// Promise: an agent that nobody has asked for a while asks the owner all the same, and so does one
// that could not reach it for a moment.
func TestIdleAgentAsksTheOwner(t *testing.T) {
	w := newWorld(t, 3, five)
	ms := append(w.members(3), Member{ID: "n4", Boot: 4, Role: RoleAgent})
	agent := w.create("n4", 4)
	agent.Start()
	w.show(ms, time.Millisecond, "n1", "n2", "n3", "n4")
	key := w.key("n2", 0)
	forwarded := func(when string) {
		t.Helper()
		if d := w.take("n4", "five", key); d.Owner != "n2" || d.Source != SourceForwarded ||
			d.Degraded {
			t.Errorf("%s: owner %s, source %s; want n2, forwarded", when, d.Owner, d.Source)
		}
	}
	w.pass(10 * time.Second)
	forwarded("after ten seconds without a question")

	refuse := true
	w.meet = func(c *Call, deliver func() *Answer) {
		if refuse && c.To.ID == "n2" {
			c.Err = fmt.Errorf("%w, %w", ErrUnsent, ErrGone)
			return
		}
		c.Answer = deliver()
	}
	w.take("n4", "five", w.key("n2", 1))
	refuse = false
	w.pass(10 * time.Second)
	forwarded("ten seconds after nobody had listened there")
	if n := agent.parts.Held(); n != 0 {
		t.Errorf("the agent holds %d partitions", n)
	}
}

func TestReadyNeedsTheRing(t *testing.T) {
	w := newWorld(t, 1, five)
	n, err := New(Config{
		ID: "n1", Boot: 9, Clock: w, Network: w,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if n.Ready() {
		t.Error("ready without a view")
	}
	if err := n.Check(&Request{Items: []Item{{Limit: "five", Key: "k"}}},
		make([]Decision, 1)); !errors.Is(err, ErrNoView) {
		t.Errorf("%v, want ErrNoView", err)
	}
	ms := w.members(1)
	for _, c := range []struct {
		state State
		ready bool
	}{{StateJoining, false}, {StateActive, true}, {StateLeaving, false}} {
		ms[0].State = c.state
		n.SetView(w.view("n1", ms))
		if n.Ready() != c.ready {
			t.Errorf("%s: ready %t, want %t", c.state, n.Ready(), c.ready)
		}
	}
}

func TestViewRefusesNonsense(t *testing.T) {
	a := Member{ID: "a", State: StateActive}
	for name, ms := range map[string][]Member{
		"twice": {a, a}, "not in it": {{ID: "b"}},
		"nobody": nil,
	} {
		if v, err := NewView("a", ms); err == nil {
			t.Errorf("%s: got a view %+v", name, v)
		}
	}
}

// Promise: clients that leave no time for an answer do not make a healthy owner look dead to all
// others.
func TestImpatientClientsTripNoBreaker(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.meet = func(c *Call, deliver func() *Answer) {
		deliver()
		w.now = c.Deadline
		c.Err = errors.New("no answer before the deadline")
	}
	for range 2 * breaker.Trips {
		out := make([]Decision, 1)
		r := &Request{
			Deadline: w.now.Add(20 * time.Microsecond),
			Items:    []Item{{Limit: "five", Key: w.key("n2", 1), Cost: 1}},
		}
		if err := w.nodes["n1"].Check(r, out); err != nil || !out[0].Degraded {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	w.meet = nil
	if d := w.take("n1", "five", key); d.Source != SourceForwarded || d.Degraded {
		t.Errorf("after some impatient clients: %+v", d)
	}
}

// Promise: a connection that breaks is no silence. A peer that has just answered by it is asked
// again at once, however many were lost, and nobody falls back for a while.
func TestBrokenConnectionTripsNoBreaker(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	lost := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.To.ID == "n2" && lost < 2*breaker.Trips {
			lost++
			c.Err = fmt.Errorf("%w: reset", ErrBroken)
			return
		}
		c.Answer = deliver()
	}
	if d := w.take("n1", "five", key); d.Source != SourceForwarded || d.Degraded ||
		lost != 2*breaker.Trips {
		t.Errorf("after %d broken connections: %+v", lost, d)
	}
}
