package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"penstock/cluster/ownership"
)

// A node that reaches no majority of the voters decides nothing, for as long as that lasts: others
// may decide on the other side of a cut, and no time makes that untrue. If the voters are gone for
// good, an operator has to say so (Recover).

// ErrMajority refuses to recover a cluster that has its voters.
var ErrMajority = errors.New(
	"recover: a majority of the voters answers this node, or it waits for a cluster that has " +
		"members, so there is nothing to recover; if those have lost their majority, recover one " +
		"of them",
)

// ErrNotAgreed refuses to recover what is not a member of a cluster.
var ErrNotAgreed = errors.New(
	"recover: this node keeps no keys together with others, it is alone or an agent; ask a member",
)

// Lost is which voters do not answer this node, by id, if they are so many that it may not decide;
// else none.
func (m Membership) Lost() (missing []string) {
	a := m.a
	if !a.on || !a.minority.Load() {
		return nil
	}
	r := a.view.Load()
	on := a.roll.Load()
	if r == nil || !on.joined() {
		return nil
	}
	for _, m := range on.config.Members {
		i := r.Find(m.ID)
		if !on.config.Votes(m.Boot) || m.ID == a.id || i < 0 {
			continue
		}
		// one that answers that it is cut off as well is no cause
		if p := r.peers[i]; p.left.Load() || p.mute.Load() != 0 || !SameProcess(m.Boot, p.boot) {
			missing = append(missing, m.ID)
		}
	}
	if voters := len(on.config.Voters); 2*(voters-len(missing)) > voters {
		return nil // a majority answers, and is about to acknowledge its right
	}
	return missing
}

// LostText says what Lost means, and what helps; empty if nothing is lost.
func (m Membership) LostText() string {
	missing := m.Lost()
	if len(missing) == 0 {
		return ""
	}
	voters := len(m.a.Agreed().Voters)
	return fmt.Sprintf(
		"this node decides nothing: of %d voters a majority is needed, and %s do not answer; "+
			"bring them back or heal the network, or, if they are gone for good, "+
			"run penstock recover against one node that is left",
		voters,
		strings.Join(missing, ", "),
	)
}

// Recover has this node go on without the voters that it has lost, as an operator says that they
// are gone for good. Those that still answer it go along. It is refused while a majority answers,
// and while a node that waits to be admitted hears members of the cluster, or knows them by gossip.
// If that was wrong and the others live, both sides decide until they meet; then one gives way.
func (m Membership) Recover() error {
	a := m.a
	if !a.on {
		return ErrNotAgreed
	}
	now := a.clock.Now()
	a.mu.Lock()
	lost := a.state.Alone(ownership.Instant(now)) && (a.state.Config() != nil || !a.knowsMembers())
	if a.state.Stage() == ownership.StageJoined {
		lost = a.cutOff(now)
	}
	a.mu.Unlock()
	if !lost {
		return ErrMajority
	}
	a.agree(0, ownership.Recover{}, ownership.Poll{})
	return nil
}

// knowsMembers reports whether gossip knows others that count themselves as members of a cluster. A
// node that hears none of them by its peer address would found another one beside theirs.
func (a *agreement) knowsMembers() bool {
	v := a.views.hinted.Load()
	return v != nil && slices.ContainsFunc(v.Members, func(m Member) bool {
		return m.ID != a.id && m.Role == RoleMember && m.State == StateActive
	})
}

// Voters are the ids of those that vote on the list of members; none of a node that is alone.
func (m Membership) Voters() (ids []string) {
	a := m.a
	if c := a.Agreed(); c != nil {
		for _, m := range c.Members {
			if slices.Contains(c.Voters, m.Boot) {
				ids = append(ids, m.ID)
			}
		}
	}
	return ids
}
