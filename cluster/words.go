package cluster

import "penstock/cluster/ownership"

// Words are what one boot says to another about ownership.
type Words struct {
	From, To ownership.Boot // To 0: any boot that listens at that address
	ID, Addr string         // of From: its id, and its peer address
	Process  uint64         // boot of the node that From belongs to (sameProcess)
	Said     []ownership.Message
}

// livesBits are the bits of a boot that say which life of a process it is: an evicted process goes
// on as another boot.
const livesBits = 16

// sameProcess reports whether b is one of the lives of a process.
func sameProcess(b ownership.Boot, process uint64) bool {
	return (uint64(b)^process)<<livesBits == 0
}

// Forged is the reason why these words cannot come from the node with an id and a boot, which is
// at the other end of a line; empty: they can. A node speaks for itself, and passes on what
// members say of partitions (ownership.Relayed). An agent by its certificate asks, and is never a
// member.
func (w *Words) Forged(id string, boot uint64, agent bool) string {
	if w.ID != id || w.Process != boot || !sameProcess(w.From, boot) {
		return "it names another sender than the node that has opened the stream"
	}
	for _, m := range w.Said {
		if agent && !agentSays(m) {
			return "it says what members say, and the certificate of its sender is an agent's"
		}
		if !w.mine(m) {
			return "it says in another node's name what only that node can say: " + m.String()
		}
	}
	return ""
}

// mine reports whether the sender may say m.
func (w *Words) mine(m ownership.Message) bool {
	switch m := m.(type) {
	case ownership.Hello:
		return w.me(m.Member, m.Former)
	case ownership.Join:
		return w.me(m.Member, m.Former)
	case ownership.Relayed:
		return m.From == w.From || relayable(m.Inner)
	}
	return true
}

// me reports whether a member is the sender, and former a boot of the same process.
func (w *Words) me(m ownership.Member, former ownership.Boot) bool {
	return m.ID == w.ID && m.Boot == w.From && (former == 0 || sameProcess(former, w.Process))
}

// relayable reports whether m is among what two members say to each other by way of a voter:
// claims, and what is answered to them.
func relayable(m ownership.Message) bool {
	switch m.(type) {
	case ownership.Claim, ownership.ClaimAnswer, ownership.Gift, ownership.Taken,
		ownership.Behind, ownership.Decided, ownership.Missed, ownership.Hello:
		return true
	}
	return false
}

func agentSays(m ownership.Message) bool {
	switch m := m.(type) {
	case ownership.Hello:
		return m.Config == nil && !m.Deciding
	case ownership.Behind:
		return true
	}
	return false
}
