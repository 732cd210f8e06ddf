package gossip

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"penstock/cluster"
)

const (
	// mourned is how long a node that died without a goodbye is looked for.
	mourned = 24 * time.Hour
	// maxLost bounds how many are: nodes with names that never come back would add up.
	maxLost = 256
)

// roster is everyone that the library believes alive, kept up by its callbacks. They run under the
// library's lock, so they never wait and never call it back: they copy, and ring one of two bells.
type roster struct {
	id   string
	name string // of this boot of this node

	came bell   // someone is new or has changed
	went bell   // someone died, said goodbye or is about to
	met  func() // someone else is there

	agreed func(boot uint64) bool // Config.Agreed

	mu    sync.Mutex // guards what follows
	me    meta
	alive map[string]peer // by name; several boots of one id may be alive for a while
	lost  map[string]loss // by id: died without a goodbye
	twin  error           // another process runs as this very boot
}

// peer is one boot of a node.
type peer struct {
	id   string
	addr string // of its gossip
	meta
}

type loss struct {
	peer
	at time.Time
}

func newRoster(m cluster.Member, version string, started time.Time, met func()) (*roster, error) {
	me := meta{
		state: m.State, role: m.Role, boot: m.Boot, started: uint64(started.UnixNano()),
		algorithm: algorithm,
		peer:      m.PeerAddr, grpc: m.GRPCAddr, http: m.HTTPAddr, features: cluster.OwnFeatures,
		limits: m.Limits, version: version,
	}
	longest := me
	for i := range longest.replaced {
		longest.replaced[i] = 1
	}
	encoded, err := longest.encode()
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	if _, err := decodeMeta(encoded); err != nil { // the others would refuse it
		return nil, fmt.Errorf("gossip: this node cannot be described to others: %w", err)
	}
	return &roster{
		id: m.ID, name: nodeName(m.ID, m.Boot), met: met, me: me,
		agreed: func(uint64) bool { return false },
		came:   newBell(), went: newBell(),
		alive: map[string]peer{}, lost: map[string]loss{},
	}, nil
}

// members are the members of a View, sorted by id, one per id: of several boots the one that comes
// before the others (contest.go). If another boot comes before this one, or a copy of this process
// runs, this node is contested: it shows itself as JOINING, and owns nothing.
func (r *roster) members() (members []cluster.Member, contested bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := map[string]peer{}
	for _, p := range r.alive {
		if old, ok := first[p.id]; p.id != r.id && (!ok || r.comesBefore(p.meta, old.meta)) {
			first[p.id] = p
		}
	}
	me := r.me.member(r.id)
	contested = r.twin != nil || len(r.rivalsLocked()) > 0
	if contested && me.State == cluster.StateActive {
		me.State = cluster.StateJoining
	}
	members = append(members, me)
	for id, p := range first {
		members = append(members, p.member(id))
	}
	slices.SortFunc(members, func(a, b cluster.Member) int { return strings.Compare(a.ID, b.ID) })
	return members, contested
}

// copied is the reason why this node must stop if a copy of its process runs; nil if none does.
func (r *roster) copied() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.twin
}

// setState reports whether the state is another than before.
func (r *roster) setState(s cluster.State) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.me.state != s
	r.me.state = s
	return changed
}

// setLimits reports whether the hash is another than before.
func (r *roster) setLimits(hash uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.me.limits != hash
	r.me.limits = hash
	return changed
}

// addr is where this node's gossip is reached. Known as soon as the library runs: it counts this
// node as a member.
func (r *roster) addr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.alive[r.name].addr
}

// addrs are where the gossip of everyone alive is reached, this node included.
func (r *roster) addrs() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	addrs := make(map[string]bool, len(r.alive))
	for _, p := range r.alive {
		addrs[p.addr] = true
	}
	return addrs
}

func (r *roster) version(id string, boot uint64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, there := r.alive[nodeName(id, boot)]; there {
		return p.meta.version
	}
	if l, died := r.lost[id]; died && l.boot == boot {
		return l.meta.version
	}
	return ""
}

// missing are the addresses of at most n members that died without a goodbye, drawn at random.
func (r *roster) missing(n int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.lost, func(_ string, l loss) bool { return time.Since(l.at) > mourned })
	addrs := make([]string, 0, len(r.lost))
	for _, l := range r.lost {
		addrs = append(addrs, l.addr)
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs[:min(n, len(addrs))]
}

// understand checks what the library has heard about a node and copies it.
func understand(n *memberlist.Node) (peer, error) {
	id, boot, err := parseNodeName(n.Name)
	if err != nil {
		return peer{}, fmt.Errorf("%s is refused: %w", n.Address(), err)
	}
	m, err := decodeMeta(n.Meta)
	if err != nil {
		return peer{}, fmt.Errorf("%q at %s is refused: %w", id, n.Address(), err)
	}
	if m.boot != boot {
		return peer{}, fmt.Errorf(
			"%q at %s is refused: its name and its record are of different boots", id, n.Address())
	}
	if m.algorithm != algorithm {
		return peer{}, fmt.Errorf(
			"%q at %s is refused: it distributes keys by another algorithm than this node "+
				"(%016x, here %016x); "+
				"run the same version on all nodes of a cluster", id, n.Address(), m.algorithm,
			algorithm)
	}
	return peer{id: id, addr: n.Address(), meta: m}, nil
}

// NotifyAlive refuses nodes with which this one cannot work.
func (r *roster) NotifyAlive(n *memberlist.Node) error {
	_, err := understand(n)
	return err
}

// NotifyMerge does the same for a whole cluster at a join, so that the join itself fails and says
// why.
func (r *roster) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if n.State == memberlist.StateDead || n.State == memberlist.StateLeft {
			continue
		}
		if _, err := understand(n); err != nil {
			return err
		}
	}
	return nil
}

// NotifyJoin is also called for this node itself, as the first.
func (r *roster) NotifyJoin(n *memberlist.Node) { r.put(n) }

// NotifyUpdate tells of a new record of a node that was there already.
func (r *roster) NotifyUpdate(n *memberlist.Node) { r.put(n) }

func (r *roster) put(n *memberlist.Node) {
	p, err := understand(n)
	if err != nil {
		return // NotifyAlive has refused it before
	}
	r.mu.Lock()
	r.alive[n.Name] = p
	delete(r.lost, p.id)
	r.mu.Unlock()
	if p.state == cluster.StateLeaving {
		r.went.ring()
	} else {
		r.came.ring()
	}
	if p.id != r.id {
		r.met()
	}
}

// NotifyLeave tells of a node that died or said goodbye. The library does not say which, but a node
// is LEAVING before it says goodbye.
func (r *roster) NotifyLeave(n *memberlist.Node) {
	r.mu.Lock()
	p, known := r.alive[n.Name]
	delete(r.alive, n.Name)
	if known && p.state != cluster.StateLeaving && p.id != r.id && !r.aliveLocked(p.id) {
		r.loseLocked(p)
	}
	r.mu.Unlock()
	r.went.ring()
}

func (r *roster) aliveLocked(id string) bool {
	for _, p := range r.alive {
		if p.id == id {
			return true
		}
	}
	return false
}

func (r *roster) loseLocked(p peer) {
	if len(r.lost) >= maxLost {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(r.lost)), func(a, b string) int {
			return cmp.Or(r.lost[a].at.Compare(r.lost[b].at), strings.Compare(a, b))
		})
		delete(r.lost, oldest)
	}
	r.lost[p.id] = loss{peer: p, at: time.Now()}
}

// NotifyConflict tells of one name at two addresses. Names carry a random boot id, so this is a
// process that was copied while it ran (a snapshot of a virtual machine started twice).
func (r *roster) NotifyConflict(existing, other *memberlist.Node) {
	if existing.Name != r.name {
		return
	}
	r.mu.Lock()
	r.twin = fmt.Errorf(
		"gossip: a copy of this very process (node id %q, boot %016x) runs at %s; this one must "+
			"stop", r.id, r.me.boot, other.Address())
	r.mu.Unlock()
	r.went.ring()
}

// NodeMeta is asked for when this node speaks of itself.
func (r *roster) NodeMeta(int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.me.encode()
	if err != nil {
		// it was tried with all that can be added
		panic("gossip: a record that fitted at the start no longer does: " + err.Error())
	}
	return b
}

// Nothing but membership travels by gossip: its messages are lossy, unordered and small.

func (r *roster) NotifyMsg([]byte)                {}
func (r *roster) GetBroadcasts(int, int) [][]byte { return nil }
func (r *roster) LocalState(bool) []byte          { return nil }
func (r *roster) MergeRemoteState([]byte, bool)   {}

// bell rings on until it is answered, however often it was rung.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
