package ownership

import (
	"errors"
	"fmt"
	"slices"
)

// Bounds of names and lists in a message. They are generous: a cluster has at most 1,024 owners.
const (
	MaxMembers = 2048    // of one configuration, and as many rivals
	MaxName    = 255     // bytes of an id or a zone
	MaxLineage = 1 << 15 // bytes of a lineage, 8 for each boot in it
)

// Check reports what is wrong with a configuration that comes from elsewhere. No rule of the
// protocol is looked at here, but what all code that reads a configuration relies on.
func (c *Configuration) Check() error {
	if err := c.Epoch.Check(); err != nil {
		return err
	}
	if err := c.Previous.Check(); err != nil {
		return err
	}
	if err := c.checkSizes(); err != nil {
		return err
	}
	if err := c.checkMembers(); err != nil {
		return err
	}
	for i, v := range c.Voters {
		if i > 0 && c.Voters[i-1] >= v || !c.Has(v) {
			return fmt.Errorf("voters[%d] is %d; voters are members, and sorted", i, v)
		}
	}
	return c.checkBoots()
}

func (c *Configuration) checkSizes() error {
	switch {
	case c.Epoch.Number == 0:
		return errors.New("its epoch has the number 0")
	case len(c.Members) == 0 || len(c.Members) > MaxMembers:
		return fmt.Errorf("it has %d members; 1 to %d are accepted", len(c.Members), MaxMembers)
	case c.Failover != 0 && (c.Failover < MinFailover || c.Failover > MaxFailover):
		return fmt.Errorf("it has a failover of %v; %v to %v are accepted", c.Failover, MinFailover,
			MaxFailover)
	case c.Copies > TwoCopies:
		return fmt.Errorf("it has a code of copies of %d; 0 to %d are known", c.Copies, TwoCopies)
	case len(c.Rivals) > MaxMembers:
		return fmt.Errorf("it has %d rivals; at most %d are accepted", len(c.Rivals), MaxMembers)
	case len(c.Voters) == 0 || len(c.Voters) > MaxVoters:
		return fmt.Errorf("it has %d voters; 1 to %d are accepted", len(c.Voters), MaxVoters)
	}
	return nil
}

func (c *Configuration) checkMembers() error {
	for i := range c.Members {
		if err := c.Members[i].Check(); err != nil {
			return fmt.Errorf("members[%d] %w", i, err)
		}
		if i > 0 && c.Members[i-1].ID >= c.Members[i].ID {
			return fmt.Errorf(
				"members[%d] is %q after %q; members are sorted by id, and ids differ",
				i, c.Members[i].ID, c.Members[i-1].ID)
		}
	}
	for i := range c.Rivals {
		if err := c.Rivals[i].Check(); err != nil {
			return fmt.Errorf("rivals[%d] %w", i, err)
		}
	}
	return nil
}

// checkBoots reports two members of one boot.
func (c *Configuration) checkBoots() error {
	boots := make([]Boot, len(c.Members))
	for i := range c.Members {
		boots[i] = c.Members[i].Boot
	}
	slices.Sort(boots)
	for i := 1; i < len(boots); i++ {
		if boots[i] == boots[i-1] {
			return fmt.Errorf("two members have the boot %d", boots[i])
		}
	}
	return nil
}

// Check reports what is wrong with a member.
func (m *Member) Check() error {
	switch {
	case m.ID == "" || len(m.ID) > MaxName:
		return fmt.Errorf("has an id of %d bytes; 1 to %d are accepted", len(m.ID), MaxName)
	case len(m.Zone) > MaxName:
		return fmt.Errorf("has a zone of %d bytes; at most %d are accepted", len(m.Zone), MaxName)
	case m.Boot == 0:
		return errors.New("has the boot 0")
	case m.Role > RoleLeaving:
		return fmt.Errorf("has the role %d; 0 to %d are known", m.Role, RoleLeaving)
	}
	return nil
}

// Check reports what is wrong with an epoch. The zero epoch is one: before the first.
func (e Epoch) Check() error {
	if n := len(e.Lineage); n%8 != 0 || n > MaxLineage || (n == 0) != (e.Number == 0) {
		return fmt.Errorf(
			"epoch %d has a lineage of %d bytes; 8 for each boot and at most %d are accepted",
			e.Number, n, MaxLineage)
	}
	return nil
}
