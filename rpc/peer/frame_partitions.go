package peer

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/ring"
	"penstock/rpc/wire"
)

// appendPartitions writes a packed list.
func appendPartitions(b []byte, num protowire.Number, list []uint16) []byte {
	if len(list) == 0 {
		return b
	}
	b, begin := wire.Open(b, num)
	for _, p := range list {
		b = protowire.AppendVarint(b, uint64(p))
	}
	return wire.Close(b, begin)
}

// readPartitions appends a list, packed or a single one of a list that is not.
func readPartitions(list []uint16, f *wire.Fields) ([]uint16, error) {
	if f.Wire == protowire.VarintType {
		return appendPartition(list, f.Value)
	}
	for b := f.Bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, wire.ErrMessage
		}
		var err error
		if list, err = appendPartition(list, v); err != nil {
			return nil, err
		}
		b = b[n:]
	}
	return list, nil
}

func appendPartition(list []uint16, v uint64) ([]uint16, error) {
	if v >= ring.Partitions {
		return nil, fmt.Errorf("names partition %d; there are 0 to %d", v, ring.Partitions-1)
	}
	if len(list) == ring.Partitions {
		return nil, fmt.Errorf("lists more than the %d partitions there are", ring.Partitions)
	}
	return append(list, uint16(v)), nil
}

// partitionsIn is the list of partitions with a field number.
func partitionsIn(m *cluster.Move, num protowire.Number) *[]uint16 {
	switch num {
	case moveClaim:
		return &m.Claim
	case moveBegin:
		return &m.Begin
	case moveGift:
		return &m.Gift
	case moveEnd:
		return &m.End
	case moveLent:
		return &m.Lent
	case moveWhole:
		return &m.Whole
	}
	return &m.Lack.Of
}
