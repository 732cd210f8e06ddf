package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

func secretOf(s Secret) func(*ownership.Configuration) {
	return func(c *ownership.Configuration) { c.Secret = s }
}

// able are members of this release.
func (w *world) able(k int) []Member {
	ms := w.members(k)
	for i := range ms {
		ms[i].Features = OwnFeatures
	}
	return ms
}

// wantPlaces checks that all nodes place keys under one secret, and returns it.
func (w *world) wantPlaces(when string) (secret Secret) {
	w.t.Helper()
	first := w.nodes["n1"].View()
	for id, n := range w.nodes {
		v := n.View()
		if v.Secret != first.Secret || v.RingHash() != first.RingHash() {
			w.t.Errorf("%s: %s and n1 place keys under different secrets", when, id)
		}
		for i := range 200 {
			hash := limiter.Hash(fmt.Sprint("k", i))
			if a, b := v.Members[v.Owner(hash)].ID,
				first.Members[first.Owner(hash)].ID; a != b {
				w.t.Fatalf("%s: k%d is %s's at %s, and %s's at n1", when, i, a, id, b)
			}
		}
	}
	return first.Secret
}

// Promise: a key has one owner at all nodes, under a secret as without one: over a newcomer and a
// death too, and no count is lost.
func TestSecretPlacesAllNodesAlike(t *testing.T) {
	const secret, keys = Secret(0xfeedfacecafebeef), 600
	w := founded(t, 3, secretOf(secret), five)
	if got := w.wantPlaces("at the beginning"); got != secret {
		t.Fatalf("keys are placed under %d", uint64(got))
	}
	moved := 0
	for i := range keys {
		hash := limiter.Hash(fmt.Sprint("k", i))
		if w.nodes["n1"].View().Partition(hash) != ring.Partition(hash) {
			moved++
		}
	}
	if moved < keys-5 {
		t.Errorf("%d of %d keys are in another partition than without a secret", moved, keys)
	}
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	w.start("n4", 4)
	w.show(w.members(4), 0, "n1", "n2", "n3", "n4")
	w.pass(3 * time.Second)
	w.wantPlaces("with a newcomer")
	w.wantOneHolderEach("with a newcomer")
	w.wantRemaining("with a newcomer", keys, 3, "n1", "n2", "n3", "n4")
	w.kill("n2")
	ms := w.members(4)
	w.show(append(ms[:1:1], ms[2:]...), 0, "n1", "n3", "n4")
	w.pass(5 * time.Second)
	w.wantPlaces("after a death")
	w.wantOneHolderEach("after a death")
	w.wantRemaining("after a death", keys, 3, "n1", "n3", "n4")
}

// Promise: what files say is counted, whatever secret the cluster is founded with afterwards: keys
// are found in their new partitions, and given to the members that own them now.
func TestRestartUnderAnotherSecret(t *testing.T) {
	for _, before := range []Secret{0, 7} {
		w := founded(t, 3, secretOf(before), five)
		const keys = 600
		w.spend(keys, "n1", "n2", "n3")
		w.pass(time.Second)
		disks, limits := w.stopAll()
		ms := w.able(3)
		for i := range ms {
			ms[i].Boot, ms[i].State = ms[i].Boot+10, StateJoining
			d := disks[ms[i].ID]
			d.head.Secret = 0
			w.restartUnder(Secret(100+i), ms[i].ID, ms[i].Boot, limits, d)
		}
		w.show(ms, 0, "n1", "n2", "n3")
		for _, n := range w.nodes {
			n.Start()
		}
		w.pass(2 * time.Second)
		if s := w.wantPlaces("after the restart"); s < 100 || s > 102 {
			t.Errorf("keys are placed under %d", uint64(s))
		}
		w.wantOneHolderEach("after the restart")
		w.wantRemaining("after the restart", keys, 3, "n1", "n2", "n3")
		w.pass(2 * time.Minute)
		w.wantRemaining("when the windows are over", keys, 5, "n1", "n2", "n3")
	}
}

// Promise: a secret that a file had is kept by a founder, and where a member does not understand
// secrets the cluster is founded without one.
func TestSecretOfAFounder(t *testing.T) {
	for _, old := range []bool{false, true} {
		w := emptyWorld(t, limiter.TableConfig{Bytes: 1 << 20}, five)
		w.electors = 3
		ms := w.able(3)
		if old {
			ms[2].Features = FeatureRelay | FeatureHolds
		}
		for _, m := range ms {
			n := w.create(m.ID, m.Boot)
			n.Membership().Agree(Trust{Secret: Secret(m.Boot)})
			n.Membership().Keep(0) // a file of a release without secrets
			n.Membership().Keep(55)
			n.Start()
		}
		w.show(ms, 0, "n1", "n2", "n3")
		w.pass(2 * time.Second)
		want := Secret(55)
		if old {
			want = 0
		}
		if got := w.wantPlaces("founded"); got != want {
			t.Errorf("founded under %d, want %d", uint64(got), uint64(want))
		}
		w.wantOneHolderEach("founded")
	}
}

// Promise: an agent, which is in no configuration, asks a member for the secret before it is asked
// anything, or learns it with the first answer, and asks the owners from then on.
func TestAgentLearnsTheSecret(t *testing.T) {
	for _, lost := range []bool{false, true} { // what it asks by itself
		t.Run(fmt.Sprintf("lost %t", lost), func(t *testing.T) { testAgentLearns(t, lost) })
	}
}

func testAgentLearns(t *testing.T, lost bool) {
	const secret = Secret(0xfeedfacecafebeef)
	w := founded(t, 3, secretOf(secret), five)
	agent := w.create("n4", 4)
	agent.Start()
	ms := append(w.members(3), Member{ID: "n4", Boot: 4, Role: RoleAgent, State: StateActive})
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; lost && m != nil && m.ID == "n4" {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	w.show(ms, time.Millisecond, "n1", "n2", "n3", "n4")
	if lost {
		w.take("n4", "five", "first")
	} else {
		w.pass(time.Second)
	}
	if got := w.wantPlaces("after the agent has come"); got != secret {
		t.Fatalf("keys are placed under %d", uint64(got))
	}
	w.meet = nil
	disowned := func() (sum uint64) {
		for _, n := range w.nodes {
			sum += n.Stats().Disowned.Load()
		}
		return sum
	}
	before := disowned()
	for i := range 100 {
		key := fmt.Sprint("k", i)
		v := w.nodes["n1"].View()
		if d := w.take("n4", "five", key); d.Degraded || d.Remaining != 4 ||
			d.Owner != v.Members[v.Owner(limiter.Hash(key))].ID {
			t.Fatalf("%s: %+v", key, d)
		}
	}
	if after := disowned(); after != before {
		t.Errorf("%d of 100 asks went to a node that is not the owner", after-before)
	}
	w.show(ms, 0, "n4") // news of gossip, which knows no secret
	if agent.View().Secret != secret {
		t.Error("the agent has forgotten the secret")
	}
}

// Promise: when a cluster gives way to another one, its nodes keep what they know as copies, in the
// partitions where the other cluster has those keys, and decide for none of them.
func TestConcededNodeMovesItsKeys(t *testing.T) {
	w := founded(t, 1, secretOf(5), five)
	const keys = 100
	w.spend(keys, "n1")
	n := w.nodes["n1"]
	for i := range keys {
		if !n.parts.holds(limiter.Hash(fmt.Sprint("k", i))) {
			t.Fatalf("k%d is not held at the beginning", i)
		}
	}
	other := ownership.Member{ID: "n0", Boot: 1 << 40}
	theirs := &ownership.Configuration{
		Epoch:   ownership.Epoch{Lineage: ownership.Founded(0), Number: 4},
		Members: []ownership.Member{other}, Voters: []ownership.Boot{other.Boot}, Secret: 9,
	}
	n.agreed.agree(0, ownership.Received{
		From:    other.Boot,
		Message: ownership.Hello{Member: other, Config: theirs, Deciding: true},
	})
	n.SetView(w.view("n1", w.members(1)))
	if n.View().Secret != 9 || n.Agreed() != nil {
		t.Fatalf("the node has not given way: it is a member in %v", n.Agreed())
	}
	for i := range keys {
		hash := limiter.Hash(fmt.Sprint("k", i))
		p := n.View().Partition(hash)
		pt := &n.parts.list[p]
		if p != ring.PartitionUnder(9, hash) || pt.state != partCopied || !pt.restored ||
			pt.whole || !n.parts.keeps(hash) || n.holder.Holds(hash) {
			t.Fatalf("k%d is in partition %d, %+v", i, p, pt)
		}
	}
	kept := 0
	for p := range n.parts.list {
		if n.parts.list[p].state != partNone {
			kept++
		}
	}
	if kept > keys {
		t.Errorf("%d partitions are kept for %d keys", kept, keys)
	}
	w.pass(time.Second) // sweeps
	if got := len(w.save("n1").entries); got != keys {
		t.Errorf("%d of %d entries are left", got, keys)
	}
}

// Promise: a member takes copies in only if the numbers of their partitions mean to it what they
// mean to their sender. One that joins is sent copies before it has the configuration with the
// secret; it would forget them when it learns where keys lie, and their sender would go on as if
// it had them.
func TestCopiesUnderAnotherSecretAreRefused(t *testing.T) {
	const secret = Secret(0xfeedfacecafebeef)
	w := founded(t, 3, secretOf(secret), five)
	n, from := w.nodes["n1"], w.nodes["n2"]
	l := n.Limits()["five"]
	charge := []Charge{{Limit: l, Key: "k", Units: 1}}
	sequence := uint64(1 << 40)
	for _, row := range []struct {
		name string
		m    Move
		want bool
	}{
		{"none", Move{Copying: Copying{Begin: []uint16{1}}}, false},
		{"another", Move{Secret: secret + 1, Copying: Copying{Begin: []uint16{1}}}, false},
		{"another, a gift", Move{Secret: secret + 1, Giving: Giving{Gift: []uint16{1}}}, false},
		{"the same", Move{Secret: secret, Copying: Copying{Begin: []uint16{1}}}, true},
		{"none, and no partitions", Move{Charges: charge}, true},
	} {
		sequence++
		row.m.From, row.m.ID, row.m.To, row.m.Sequence = from.boot, "n2", n.boot, sequence
		a := n.intake.hear(w.now, n.view.Load(), &row.m)
		if got := a != nil && a.Applied; got != row.want {
			t.Errorf("%s: it is taken in: %v, want %v", row.name, got, row.want)
		}
	}
}
