package rpc

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster/ownership"
)

// Field numbers of peer.proto for configurations.
const (
	epochLineage, epochNumber = 1, 2

	configEpoch, configPrevious, configMembers, configVoters, configRivals, configFailover = 1, 2, 3, 4, 5, 6

	memberID, memberBoot, memberRole, memberZone = 1, 2, 3, 4
)

// sizeEpoch is the size of the field that appendEpoch writes, if its number is below 16.
func sizeEpoch(e ownership.Epoch) int {
	if e == (ownership.Epoch{}) {
		return 0
	}
	return sizeBytes(sizeString(string(e.Lineage)) + sizeUint(e.Number))
}

func appendEpoch(b []byte, num protowire.Number, e ownership.Epoch) []byte {
	if e == (ownership.Epoch{}) {
		return b
	}
	b = appendHead(b, num, sizeString(string(e.Lineage))+sizeUint(e.Number))
	b = appendString(b, epochLineage, string(e.Lineage))
	return appendUint(b, epochNumber, e.Number)
}

func appendConfig(b []byte, c *ownership.Configuration) []byte {
	b, begin := beginMessage(b, saidConfig)
	b = appendEpoch(b, configEpoch, c.Epoch)
	b = appendEpoch(b, configPrevious, c.Previous)
	for i := range c.Members {
		b = appendMember(b, configMembers, &c.Members[i])
	}
	b = appendMemberBoots(b, configVoters, c.Voters)
	for i := range c.Rivals {
		b = appendMember(b, configRivals, &c.Rivals[i])
	}
	b = appendUint(b, configFailover, uint64(c.Failover.Milliseconds()))
	return endMessage(b, begin)
}

func appendMember(b []byte, num protowire.Number, m *ownership.Member) []byte {
	size := sizeString(m.ID) + sizeFixed(uint64(m.Boot)) + sizeUint(uint64(m.Role)) +
		sizeString(m.Zone)
	b = appendHead(b, num, size)
	b = appendString(b, memberID, m.ID)
	b = appendFixed(b, memberBoot, uint64(m.Boot))
	b = appendUint(b, memberRole, uint64(m.Role))
	return appendString(b, memberZone, m.Zone)
}

// appendMemberBoots writes a packed list.
func appendMemberBoots(b []byte, num protowire.Number, list []ownership.Boot) []byte {
	if len(list) == 0 {
		return b
	}
	b = appendHead(b, num, 8*len(list))
	for _, boot := range list {
		b = protowire.AppendFixed64(b, uint64(boot))
	}
	return b
}

// lineageMemo is the lineage that was read last: nearly all epochs have the same one.
type lineageMemo struct{ last ownership.Lineage }

// readEpoch reads an epoch. Nothing of it lies in b.
func (m *lineageMemo) readEpoch(b []byte) (e ownership.Epoch, err error) {
	f := fields{rest: b}
	for f.next() {
		switch f.num {
		case epochLineage:
			if string(m.last) != borrow(f.bytes) {
				m.last = ownership.Lineage(f.bytes)
			}
			e.Lineage = m.last
		case epochNumber:
			e.Number = f.value
		}
	}
	if f.err != nil {
		return e, f.err
	}
	return e, e.Check()
}

// readConfig reads a configuration. Its ids and zones lie in one copy of b.
func readConfig(b []byte) (*ownership.Configuration, error) {
	c := new(ownership.Configuration)
	var memo lineageMemo
	var err error
	f := fields{rest: slices.Clone(b)}
	for f.next() && err == nil {
		switch f.num {
		case configEpoch:
			c.Epoch, err = memo.readEpoch(f.bytes)
		case configPrevious:
			c.Previous, err = memo.readEpoch(f.bytes)
		case configMembers:
			c.Members, err = readMembers(c.Members, f.bytes)
		case configVoters:
			c.Voters, err = readMemberBoots(c.Voters, &f, ownership.MaxVoters)
		case configRivals:
			c.Rivals, err = readMembers(c.Rivals, f.bytes)
		case configFailover:
			c.Failover = time.Duration(min(f.value, 1<<32)) * time.Millisecond
		}
	}
	if err = errors.Join(err, f.err); err == nil {
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
	f := fields{rest: b}
	for f.next() {
		switch f.num {
		case memberID:
			m.ID = borrow(f.bytes)
		case memberBoot:
			m.Boot = ownership.Boot(f.value)
		case memberRole:
			m.Role = ownership.Role(min(f.value, 1<<8-1))
		case memberZone:
			m.Zone = borrow(f.bytes)
		}
	}
	return m, f.err
}

// readMemberBoots appends a packed list, or a single one of a list that is not.
func readMemberBoots(list []ownership.Boot, f *fields, most int) ([]ownership.Boot, error) {
	short := readBoots(nil, f)
	if len(f.bytes)%8 != 0 || len(list)+len(short) > most {
		return nil, fmt.Errorf("lists %d bytes of boots after %d boots; 8 bytes each "+
			"and at most %d boots are accepted", len(f.bytes), len(list), most)
	}
	for _, boot := range short {
		list = append(list, ownership.Boot(boot))
	}
	return list, nil
}
