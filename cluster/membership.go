package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Membership is a node's part in the list of members that they agree on.
type Membership struct{ a *agreement }

// Membership is the node's part in the list of members.
func (n *Node) Membership() Membership { return Membership{&n.agreed} }

// Trust is what a cluster is founded with, and what a node believes.
type Trust struct {
	// Failover is how long a silent member is waited for, if this node founds the cluster:
	// LeastFailover to MostFailover; 0 is a second.
	Failover time.Duration
	// DoubtRefused says that a refused connection may come from something else than the machine of
	// a process that is gone, so its right is waited for instead.
	DoubtRefused bool
	// Copies is how many heirs keep a copy of each partition, if this node founds the cluster; the
	// zero value is one heir (ownership.CopiesOf).
	Copies ownership.Copies
	// Secret is mixed into the hashes of keys, if this node founds the cluster and all nodes that
	// it knows understand that: so nobody outside can choose keys of one owner. Let it be drawn at
	// random; 0 is none.
	Secret Secret
	// Zone is where this node is: copies are kept in another zone where there is one. At most
	// MaxZone bytes; empty: it does not say.
	Zone string
}

// Secret is mixed into the hashes of keys (Trust).
type Secret = ownership.Secret

// CopiesOf is what Trust says of a number of heirs, 0 to MostCopies.
func CopiesOf(heirs int) ownership.Copies { return ownership.CopiesOf(heirs) }

// CheckZone reports what is wrong with the name of a zone.
func CheckZone(zone string) error {
	if zone == "" || len(zone) > MaxZone ||
		strings.ContainsFunc(zone, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%.40q is not a zone's name; give 1 to %d bytes of printable text", zone,
			MaxZone)
	}
	return nil
}

// What Trust accepts, and how many members a cluster can have.
const (
	LeastFailover = ownership.MinFailover
	MostFailover  = ownership.MaxFailover
	MostMembers   = ownership.MaxMembers
	MostCopies    = ownership.MaxCopies
	MaxZone       = ownership.MaxName
)

// Agree has the node take part in what members agree on. It must be called before the first
// SetView. The node founds no cluster before Elect names the electorate.
func (m Membership) Agree(t Trust) {
	a := m.a
	m.agreeBegins()
	a.trust = t
	a.params = a.params.With(t.Failover)
	a.params.Copies = t.Copies
	a.secret = t.Secret
	a.zone = t.Zone
	a.state = ownership.New(&a.params, a.asMember(), ownership.Electorate{}, 0)
	a.publish(a.clock.Now())
}

// AgreeWithin is Agree for a node of a cluster that has been there before the world began: c names
// it, with this node's zone.
func (m Membership) AgreeWithin(c *ownership.Configuration) {
	a := m.a
	m.agreeBegins()
	if x, found := c.Member(bootOf(a.boot, 0)); found {
		a.zone = x.Zone
	}
	var fx ownership.Effects
	a.state, fx = ownership.Within(&a.params, a.asMember(), ownership.Instant(a.clock.Now()), c)
	a.publish(a.clock.Now())
	a.send(fx.Sends)
}

func (m Membership) agreeBegins() {
	a := m.a
	a.on, a.params = true, ownership.Default()
	a.seats, a.ended = make(map[ownership.Boot]seat), make(map[ownership.Boot]bool)
	a.lines = make(map[uint64]uint64)
}

// Keep has the node found a cluster, if it does, under the secret that it has from a file.
func (m Membership) Keep(s Secret) {
	m.a.mu.Lock()
	defer m.a.mu.Unlock()
	if s != 0 {
		m.a.secret = s
	}
}

// Elect names the nodes that found a cluster with this one, if there is none yet: size, of which a
// majority has to be there, and by now those of these ids are known, this node's among them. Of two
// clusters that meet, the one with the smaller stamp goes on: let it be the time, so that a node
// that founds one by mistake gives way. All may be said again when more is known.
func (m Membership) Elect(size int, ids []string, stamp uint64) {
	a := m.a
	a.mu.Lock()
	a.elect = ownership.Electorate{Size: size, IDs: ids, Stamp: ownership.Boot(stamp)}
	a.mu.Unlock()
	m.electAnew()
}

// electAnew tells the State which nodes gossip knows. They are greeted, and as long as one
// of them counts itself as a member of a cluster, no node founds another one.
func (m Membership) electAnew() {
	a := m.a
	v := a.views.hinted.Load()
	if v == nil || !a.on {
		return
	}
	a.mu.Lock()
	e := a.elect
	e.Others, e.Members = nil, nil
	if v.understandsSecret() {
		e.Secret = a.secret
	}
	for i := range v.Members {
		m := &v.Members[i]
		if i == v.Self || m.Role != RoleMember {
			continue
		}
		if !slices.Contains(e.IDs, m.ID) {
			e.Others = append(e.Others, m.ID)
		}
		if m.State == StateActive {
			e.Members = append(e.Members, m.ID)
		}
	}
	a.mu.Unlock()
	a.agree(0, e, ownership.Poll{})
}

// Has reports whether the process of some boot is a member by the configuration that this node has,
// as long as that gives it the right to decide: else another one may have been agreed on.
func (m Membership) Has(boot uint64) bool {
	return m.a.Deciding() && m.a.roll.Load().hasProcess(boot)
}

// Entered reports whether the node is a member with the right to decide, and has asked all others
// once for the partitions that it should hold. It holds what was free, and knows the holders of the
// rest.
func (m Membership) Entered() bool {
	return m.a.entered.Load() && m.a.Agreed() != nil && m.a.Deciding()
}

// Until is when the node's right to decide ends, by its clock, if nothing renews it.
func (m Membership) Until() limiter.Instant { return limiter.Instant(m.a.until.Load()) }

// LineUp notes that the process of some boot has opened a stream to this node. ended must be called
// at its end: a process is gone if its own stream has ended and its address refuses, and not if a
// packet filter refuses for a living one. The end of a stream is often noticed first, so the
// address is then tried at once. Of several streams the last one counts: a process opens another
// one when it has given the one before up, and what is left of that may hang here for as long as
// the network was cut, or longer.
func (m Membership) LineUp(boot uint64) (ended func()) {
	a := m.a
	if !a.on {
		return func() {}
	}
	a.mu.Lock()
	a.streams++
	this := a.streams
	a.lines[boot] = this
	a.mu.Unlock()
	return func() {
		a.mu.Lock()
		last := a.lines[boot] == this
		if last {
			delete(a.lines, boot)
		}
		a.mu.Unlock()
		if r := a.view.Load(); last && r != nil {
			for _, p := range r.peers {
				if p.boot == boot {
					a.contacts.lineEnded(a.clock.Now(), p)
				}
			}
		}
	}
}

// Close gives up the right to decide for good: the process closes its doors next.
func (m Membership) Close() { m.a.agree(0, ownership.Closing{}) }

// Stay takes back that this node leaves, as a View with the state LEAVING has said. If it has left
// already, it enters again as another boot.
func (m Membership) Stay() {
	a := m.a
	if !a.on || !a.leaves.Swap(false) {
		return
	}
	a.mu.Lock()
	left := a.state.Ending() == ownership.Left
	a.mu.Unlock()
	if left {
		m.a.nextLife()
		return
	}
	a.agree(0, ownership.Stay{}, ownership.Poll{})
}

// bootOf is the boot of one life of a process.
func bootOf(process, lives uint64) ownership.Boot {
	return ownership.Boot(process ^ lives<<(64-livesBits))
}
