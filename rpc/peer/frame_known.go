package peer

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/rpc/wire"
)

// Field numbers of peer.proto for what tells the newer one of two copies.
const (
	movePass, moveComplete, moveKnown = 24, 25, 26

	knownOf, knownPass, knownWhole = 1, 2, 3
)

// appendMarks writes how far the copies of m are.
func appendMarks(b []byte, m *cluster.Move) []byte {
	b = wire.AppendBool(wire.AppendUint(b, movePass, m.Pass), moveComplete, m.Complete)
	for i := range m.Known {
		k := &m.Known[i]
		b = wire.AppendHead(b, moveKnown, knownSize(k))
		b = wire.AppendFixed(b, knownOf, k.Of)
		b = wire.AppendUint(b, knownPass, k.Pass)
		b = appendPartitions(b, knownWhole, k.Whole)
	}
	return b
}

func marksSize(m *cluster.Move) int {
	size := longTag(wire.SizeUint(m.Pass)) + longTag(wire.SizeBool(m.Complete))
	for i := range m.Known {
		size += longTag(wire.SizeBytes(knownSize(&m.Known[i])))
	}
	return size
}

func knownSize(k *cluster.Known) int {
	return wire.SizeFixed(k.Of) + wire.SizeUint(k.Pass) + sizePacked(k.Whole)
}

// readMark reads one of the fields that appendMarks writes, and passes over others.
func readMark(m *cluster.Move, num protowire.Number, f *wire.Fields) (err error) {
	switch num {
	case movePass:
		m.Pass = f.Value
	case moveComplete:
		m.Complete = f.Value != 0
	case moveKnown:
		k, in := cluster.Known{}, wire.Fields{Rest: f.Bytes}
		for err == nil && in.Next() {
			switch in.Num {
			case knownOf:
				k.Of = in.Value
			case knownPass:
				k.Pass = in.Value
			case knownWhole:
				k.Whole, err = readPartitions(k.Whole, &in)
			}
		}
		err = errors.Join(err, in.Err)
		m.Known = append(m.Known, k)
	}
	return err
}
