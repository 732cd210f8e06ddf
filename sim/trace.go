package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"penstock/cluster"
)

// trace folds all that happens into one number, so that two runs can be compared at a glance, and
// remembers the last of it for a report of why a promise broke.
type trace struct {
	hash   *xxhash.Digest
	buf    []byte // of what is not hashed yet, and of the last recentHappenings
	hashed int    // bytes of buf that are hashed
	events uint64
	begins [64]int // where the last recentHappenings begin in buf, by number
}

const recentHappenings = 48

// happening is one line of a trace. Fields that do not matter to its kind are zero.
type happening struct {
	at         time.Duration
	kind       kind
	node, peer *machine
	seq        uint64 // of a request's ID, or of a message
	limit, key string
	op         cluster.Op
	cost       int64
	allowed    bool
	remaining  int64
}

// kind is what happened.
type kind uint8

const (
	asks      kind = 1 + iota // a client asks node
	hears                     // a client hears node's decision
	refuses                   // node answers a client with an error
	absent                    // a client finds node down
	sends                     // node posts a message to peer
	loses                     // the network lost a message of node to peer
	doubles                   // the network doubled one
	decides                   // node decides for peer, as owner
	declines                  // node answers peer that it decides nothing
	turnsAway                 // node is down, peer hears that
	returns                   // node's call to peer ended: allowed = with an answer
	fires                     // a timer of node
	crashes
	boots
	freezes
	thaws
	cuts // nothing passes from node to peer
	mends
	looks   // node makes a View
	buries  // node declares peer dead
	departs // node has left
	joins
	leaves
	restarts // node leaves and comes back
	rolls    // all nodes restart, one after the other
	steps    // somebody sets the clock of node
	lies     // node says to peer what is not so
)

var kindNames = [...]string{
	asks: "is asked", hears: "answers", refuses: "refuses", absent: "is down for a client",
	sends: "sends to", loses: "loses a message to",
	doubles: "doubles a message to", decides: "decides for", declines: "declines",
	turnsAway: "is down for", returns: "hears from",
	fires: "wakes up", crashes: "crashes", boots: "boots", freezes: "freezes", thaws: "thaws",
	cuts: "is cut off from", mends: "is mended to",
	looks: "sees other members", buries: "declares dead:", departs: "is gone", joins: "joins",
	leaves: "leaves", restarts: "restarts",
	rolls: "is where a rolling restart begins", steps: "has its clock set",
	lies: "lies to",
}

func newTrace() trace { return trace{hash: xxhash.New()} }

func (t *trace) add(h happening) {
	if len(t.buf) > t.hashed+traceBuffer {
		t.flush()
	}
	t.begins[t.events%uint64(len(t.begins))] = len(t.buf)
	b := append(t.buf, byte(h.kind), bit(h.allowed))
	b = binary.LittleEndian.AppendUint16(b, index(h.node))
	b = binary.LittleEndian.AppendUint16(b, index(h.peer))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.at))
	b = binary.LittleEndian.AppendUint64(b, h.seq)
	if h.limit != "" {
		b = append(b, byte(h.op))
		b = binary.LittleEndian.AppendUint64(b, uint64(h.cost))
		b = binary.LittleEndian.AppendUint64(b, uint64(h.remaining))
		b = append(append(append(b, h.limit...), 0), h.key...)
	}
	t.buf = b
	t.events++
}

// at reads the i-th happening, one of the last.
func (t *trace) at(i uint64, machines []*machine) (h happening) {
	b := t.buf[t.begins[i%uint64(len(t.begins))]:]
	if i+1 < t.events {
		b = t.buf[t.begins[i%uint64(len(t.begins))]:t.begins[(i+1)%uint64(len(t.begins))]]
	}
	who := func(n uint16) *machine {
		if n == index(nil) {
			return nil
		}
		return machines[n]
	}
	h.kind, h.allowed = kind(b[0]), b[1] != 0
	h.node, h.peer = who(binary.LittleEndian.Uint16(b[2:])), who(binary.LittleEndian.Uint16(b[4:]))
	h.at, h.seq = time.Duration(binary.LittleEndian.Uint64(b[6:])),
		binary.LittleEndian.Uint64(b[14:])
	if b = b[22:]; len(b) > 0 {
		h.op = cluster.Op(b[0])
		h.cost, h.remaining = int64(binary.LittleEndian.Uint64(b[1:])),
			int64(binary.LittleEndian.Uint64(b[9:]))
		limit, key, _ := bytes.Cut(b[17:], []byte{0})
		h.limit, h.key = string(limit), string(key)
	}
	return h
}

// traceBuffer is how much is hashed at once: it costs less than bit by bit.
const traceBuffer = 4096

// flush hashes what is not hashed yet, and keeps the latest.
func (t *trace) flush() {
	t.hash.Write(t.buf[t.hashed:])
	first := max(t.events, recentHappenings) - recentHappenings
	done := t.begins[first%uint64(len(t.begins))]
	for i := first; i < t.events; i++ {
		t.begins[i%uint64(len(t.begins))] -= done
	}
	t.buf = t.buf[:copy(t.buf, t.buf[done:])]
	t.hashed = len(t.buf)
}

// sum identifies all that happened so far.
func (t *trace) sum() uint64 {
	t.flush()
	return t.hash.Sum64()
}

// last are the latest happenings, one line each, oldest first.
func (t *trace) last(machines []*machine) (lines []string) {
	for i := max(t.events, recentHappenings) - recentHappenings; i < t.events; i++ {
		lines = append(lines, t.at(i, machines).String())
	}
	return lines
}

func (h happening) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12.6fs  %s %s", h.at.Seconds(), h.node.id, kindNames[h.kind])
	if h.peer != nil {
		b.WriteString(" " + h.peer.id)
	}
	if h.limit != "" {
		fmt.Fprintf(&b, ": %s of %s under %s", opText(h.op, h.cost), keyText(h.key), h.limit)
	}
	switch h.kind {
	case hears, decides:
		fmt.Fprintf(&b, ": %s, %d left", yesNo(h.allowed), h.remaining)
	case returns:
		if !h.allowed {
			b.WriteString(": nothing")
		}
	}
	if h.seq != 0 {
		fmt.Fprintf(&b, " (#%d)", h.seq)
	}
	return b.String()
}

func index(m *machine) uint16 {
	if m == nil {
		return 1<<16 - 1
	}
	return uint16(m.index)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
