package peer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster/ownership"
	"penstock/rpc/wire"
)

// Field numbers of peer.proto for configurations.
const (
	epochLineage, epochNumber = 1, 2

	configEpoch, configPrevious, configMembers, configVoters = 1, 2, 3, 4
	configRivals, configFailover, configCopies, configSecret = 5, 6, 7, 8

	// copiesUnderSecret is added to the code of copies where there is a secret: releases that know
	// no secrets refuse such a code.
	copiesUnderSecret = 4

	memberID, memberBoot, memberRole, memberZone = 1, 2, 3, 4
)

func appendEpoch(b []byte, num protowire.Number, e ownership.Epoch) []byte {
	if e == (ownership.Epoch{}) {
		return b
	}
	b, begin := wire.Open(b, num)
	b = wire.AppendString(b, epochLineage, string(e.Lineage))
	return wire.Close(wire.AppendUint(b, epochNumber, e.Number), begin)
}

func appendConfig(b []byte, c *ownership.Configuration) []byte {
	b, begin := wire.Open(b, saidConfig)
	b = appendEpoch(b, configEpoch, c.Epoch)
	b = appendEpoch(b, configPrevious, c.Previous)
	for i := range c.Members {
		b = appendMember(b, configMembers, &c.Members[i])
	}
	b = appendBoots(b, configVoters, c.Voters)
	for i := range c.Rivals {
		b = appendMember(b, configRivals, &c.Rivals[i])
	}
	b = wire.AppendUint(b, configFailover, uint64(c.Failover.Milliseconds()))
	copies := uint64(c.Copies)
	if c.Secret != 0 {
		copies += copiesUnderSecret
	}
	b = wire.AppendUint(b, configCopies, copies)
	b = wire.AppendFixed(b, configSecret, uint64(c.Secret))
	return wire.Close(b, begin)
}

func appendMember(b []byte, num protowire.Number, m *ownership.Member) []byte {
	b, begin := wire.Open(b, num)
	b = wire.AppendString(b, memberID, m.ID)
	b = wire.AppendFixed(b, memberBoot, uint64(m.Boot))
	b = wire.AppendUint(b, memberRole, uint64(m.Role))
	return wire.Close(wire.AppendString(b, memberZone, m.Zone), begin)
}

// lineageMemo is the lineage that was read last: nearly all epochs have the same one.
type lineageMemo struct{ last ownership.Lineage }

// readEpoch reads an epoch. Nothing of it lies in b.
func (m *lineageMemo) readEpoch(b []byte) (e ownership.Epoch, err error) {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case epochLineage:
			if string(m.last) != wire.Borrow(f.Bytes) {
				m.last = ownership.Lineage(f.Bytes)
			}
			e.Lineage = m.last
		case epochNumber:
			e.Number = f.Value
		}
	}
	if f.Err != nil {
		return e, f.Err
	}
	return e, e.Check()
}

// readConfig reads a configuration. Its ids and zones lie in one copy of b.
func readConfig(b []byte) (*ownership.Configuration, error) {
	c := new(ownership.Configuration)
	var memo lineageMemo
	var err error
	f := wire.Fields{Rest: slices.Clone(b)}
	for f.Next() && err == nil {
		switch f.Num {
		case configEpoch:
			c.Epoch, err = memo.readEpoch(f.Bytes)
		case configPrevious:
			c.Previous, err = memo.readEpoch(f.Bytes)
		case configMembers:
			c.Members, err = readMembers(c.Members, f.Bytes)
		case configVoters:
			c.Voters, err = readMemberBoots(c.Voters, &f, ownership.MaxVoters)
		case configRivals:
			c.Rivals, err = readMembers(c.Rivals, f.Bytes)
		case configFailover:
			c.Failover = time.Duration(min(f.Value, math.MaxUint32)) * time.Millisecond
		case configCopies:
			c.Copies = ownership.Copies(min(f.Value, math.MaxUint8))
		case configSecret:
			c.Secret = ownership.Secret(f.Value)
		}
	}
	if c.Secret != 0 { // without the code of one, Check refuses it
		c.Copies -= copiesUnderSecret
	}
	if err = errors.Join(err, f.Err); err == nil {
		err = c.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("has a configuration that is none: %w", err)
	}
	return c, nil
}

// readMembers appends a member. Its texts lie in b.
func readMembers(list []ownership.Member, b []byte) ([]ownership.Member, error) {
	if len(list) == ownership.MaxMembers {
		return nil, fmt.Errorf("it has more than %d members", ownership.MaxMembers)
	}
	m, err := readMember(b)
	return append(list, m), err
}

// readMember reads a member. Its texts lie in b.
func readMember(b []byte) (m ownership.Member, err error) {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case memberID:
			m.ID = wire.Borrow(f.Bytes)
		case memberBoot:
			m.Boot = ownership.Boot(f.Value)
		case memberRole:
			m.Role = ownership.Role(min(f.Value, math.MaxUint8))
		case memberZone:
			m.Zone = wire.Borrow(f.Bytes)
		}
	}
	return m, f.Err
}

// readMemberBoots appends a packed list, or a single one of a list that is not.
func readMemberBoots(list []ownership.Boot, f *wire.Fields, most int) ([]ownership.Boot, error) {
	short := readBoots(nil, f)
	if len(f.Bytes)%8 != 0 || len(list)+len(short) > most {
		return nil, fmt.Errorf("lists %d bytes of boots after %d boots; 8 bytes each "+
			"and at most %d boots are accepted", len(f.Bytes), len(list), most)
	}
	for _, boot := range short {
		list = append(list, ownership.Boot(boot))
	}
	return list, nil
}
