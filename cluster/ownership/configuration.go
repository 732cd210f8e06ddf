package ownership

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Boot is one start of one process. It is drawn at random, never used again, and loses its memory
// when the process ends. Members and voters are boots, not names: this makes a register without
// disks safe, because an acceptor that has lost its memory is another acceptor.
type Boot uint64

// Lineage is where a row of configurations comes from: the boot that founded it, then each boot
// that began a child (a fork of a pair, a child of lost voters, a recovery), oldest first, 8 bytes
// each.
type Lineage string

// Founded is the lineage of a cluster that b has founded.
func Founded(b Boot) Lineage { return Lineage("").Child(b) }

// Child is the lineage that b begins from l.
func (l Lineage) Child(b Boot) Lineage {
	return Lineage(binary.BigEndian.AppendUint64([]byte(l), uint64(b)))
}

// Beats reports whether members of o must give way to those of l when they meet. A child beats all
// its ancestors; of two others the one with the smaller boot wins where their paths part. Paths are
// compared from the root and not by their last boots, for that order would have circles.
func (l Lineage) Beats(o Lineage) bool {
	if len(l) > len(o) && strings.HasPrefix(string(l), string(o)) {
		return true
	}
	return l < o && !strings.HasPrefix(string(o), string(l))
}

// String writes the path, as in "3.7".
func (l Lineage) String() string {
	var b strings.Builder
	for i := 0; i+8 <= len(l); i += 8 {
		if i > 0 {
			b.WriteByte('.')
		}
		fmt.Fprint(&b, binary.BigEndian.Uint64([]byte(l[i:i+8])))
	}
	return b.String()
}

// Epoch names one configuration. Numbers grow by one, also from a parent to its child.
type Epoch struct {
	Lineage Lineage
	Number  uint64
}

func (e Epoch) String() string { return fmt.Sprintf("%v/%d", e.Lineage, e.Number) }

// Role says what a member is for. Agents, which own nothing, are not in a configuration: they
// follow it.
type Role uint8

const (
	RoleOwner   Role = iota // owns partitions
	RoleLeaving             // owns none any more, and gives away what it holds
)

// Member is one boot in a configuration.
type Member struct {
	ID   string
	Boot Boot
	Role Role
	Zone string
}

// Configuration is what voters agree on: the members, and which of them vote on the next one. It is
// immutable. Where a partition lies follows from it alone.
type Configuration struct {
	Epoch    Epoch
	Previous Epoch    // in which it was decided, or from which a child was begun; zero when founded
	Members  []Member // sorted by ID; IDs differ
	Voters   []Boot   // sorted
	// Rivals may decide beside this configuration: the other half of a pair. While there is one,
	// all decisions are marked, and nobody is admitted but a new boot of a rival's name.
	Rivals []Member
	// Failover is how long a silent member is waited for, as its founder has said; 0 stands for the
	// constant of that name.
	Failover time.Duration
	// Copies says how many heirs keep a copy of each partition, as its founder has said.
	Copies Copies
	// Secret is mixed into the hashes of keys, as its founder has drawn it. All configurations that
	// descend from one have the same; 0 is none.
	Secret Secret
}

// Copies says how many heirs keep a copy of a partition.
type Copies uint8

// The zero value is what releases mean that say nothing.
const (
	OneCopy Copies = iota
	NoCopies
	TwoCopies
)

// MaxCopies is the most heirs that keep copies.
const MaxCopies = 2

// CopiesOf is a number of heirs, 0 to MaxCopies.
func CopiesOf(heirs int) Copies { return [...]Copies{NoCopies, OneCopy, TwoCopies}[heirs] }

// Heirs is their number.
func (c Copies) Heirs() int { return [...]int{1, 0, 2}[c] }

// Member returns the member of a boot.
func (c *Configuration) Member(b Boot) (Member, bool) {
	for _, m := range c.Members {
		if m.Boot == b {
			return m, true
		}
	}
	return Member{}, false
}

// Has reports whether a boot is a member.
func (c *Configuration) Has(b Boot) bool {
	_, found := c.Member(b)
	return found
}

// Votes reports whether a boot is a voter.
func (c *Configuration) Votes(b Boot) bool { return slices.Contains(c.Voters, b) }

// Quorum is how many voters decide.
func (c *Configuration) Quorum() int { return len(c.Voters)/2 + 1 }

// Marked reports whether decisions are marked, because a rival may decide as well.
func (c *Configuration) Marked() bool { return len(c.Rivals) > 0 }

// rivalNamed reports whether a rival has that id.
func (c *Configuration) rivalNamed(id string) bool {
	return slices.ContainsFunc(c.Rivals, func(m Member) bool { return m.ID == id })
}

// named returns the member with an id.
func (c *Configuration) named(id string) (Member, bool) {
	for _, m := range c.Members {
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

// same reports whether both agree on everything but the epoch.
func (c *Configuration) same(o *Configuration) bool {
	return slices.Equal(c.Members, o.Members) && slices.Equal(c.Voters, o.Voters) &&
		slices.Equal(c.Rivals, o.Rivals)
}

// String writes a configuration in one line, as in "3/2{a1 b2* c3}": voters have a star.
func (c *Configuration) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v{", c.Epoch)
	for i, m := range c.Members {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s:%d", m.ID, m.Boot)
		if c.Votes(m.Boot) {
			b.WriteByte('*')
		}
		if m.Role == RoleLeaving {
			b.WriteByte('-')
		}
	}
	b.WriteByte('}')
	if c.Marked() {
		b.WriteString(" rivals")
		for _, m := range c.Rivals {
			fmt.Fprintf(&b, " %s:%d", m.ID, m.Boot)
		}
	}
	return b.String()
}

// First is the first configuration of a cluster that these members found together, by whatever way.
func First(members []Member) *Configuration {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	c := &Configuration{Epoch: Epoch{Founded(members[0].Boot), 1}, Members: members}
	c.Voters = chooseVoters(nil, members, func(Boot) bool { return true })
	return c
}

// MaxVoters is the most that vote. More would be slower and hardly safer.
const MaxVoters = 7

// chooseVoters names the voters of next (R7). Those of before stay where they can; ready says which
// owners may become voters. There is an odd number of them, but two in a pair.
func chooseVoters(before []Boot, members []Member, ready func(Boot) bool) []Boot {
	var chosen, spare []Member
	for _, m := range members {
		switch {
		case m.Role != RoleOwner:
		case slices.Contains(before, m.Boot):
			chosen = append(chosen, m)
		case ready(m.Boot):
			spare = append(spare, m)
		}
	}
	if len(chosen)+len(spare) == 0 { // all that may vote are leaving
		for _, m := range members {
			if slices.Contains(before, m.Boot) {
				chosen = append(chosen, m)
			}
		}
	}
	want := min(len(chosen)+len(spare), MaxVoters)
	if want > 2 && want%2 == 0 {
		want--
	}
	for len(chosen) > want {
		i := mostCrowded(chosen)
		chosen = slices.Delete(chosen, i, i+1)
	}
	for len(chosen) < want {
		i := leastCrowded(chosen, spare)
		chosen, spare = append(chosen, spare[i]), slices.Delete(spare, i, i+1)
	}
	voters := make([]Boot, len(chosen))
	for i, m := range chosen {
		voters[i] = m.Boot
	}
	slices.Sort(voters)
	return voters
}

// mostCrowded is the last of those in the zone with the most voters.
func mostCrowded(chosen []Member) (index int) {
	for i := range chosen {
		if inZone(chosen, chosen[i].Zone) >= inZone(chosen, chosen[index].Zone) {
			index = i
		}
	}
	return index
}

// leastCrowded is the first of spare in the zone with the fewest voters.
func leastCrowded(chosen, spare []Member) (index int) {
	for i := range spare {
		if inZone(chosen, spare[i].Zone) < inZone(chosen, spare[index].Zone) {
			index = i
		}
	}
	return index
}

func inZone(members []Member, zone string) (n int) {
	for _, m := range members {
		if m.Zone == zone {
			n++
		}
	}
	return n
}
