package peer

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/rpc/wire"
)

// Field numbers of peer.proto for what tells the newer one of two copies, and of a secret.
const (
	movePass, moveComplete, moveKnown, moveSecret, moveHeard = 24, 25, 26, 27, 28

	knownOf, knownPass, knownWhole = 1, 2, 3
)

// appendMarks writes how far the copies of m are, and the secret that it goes by.
func appendMarks(b []byte, m *cluster.Move) []byte {
	b = wire.AppendBool(wire.AppendUint(b, movePass, m.Pass), moveComplete, m.Complete)
	for i := range m.Known {
		k := &m.Known[i]
		marks := wire.AppendUint(wire.AppendFixed(wire.AppendHead(b, moveKnown, knownSize(k)),
			knownOf, k.Of), knownPass, k.Pass)
		b = appendPartitions(marks, knownWhole, k.Whole)
	}
	return wire.AppendUint(wire.AppendFixed(b, moveSecret, uint64(m.Secret)), moveHeard, m.Heard)
}

func marksSize(m *cluster.Move) int {
	size := longTag(wire.SizeUint(m.Pass)) + longTag(wire.SizeBool(m.Complete))
	for i := range m.Known {
		size += longTag(wire.SizeBytes(knownSize(&m.Known[i])))
	}
	return size + longTag(wire.SizeFixed(uint64(m.Secret))) + longTag(wire.SizeUint(m.Heard))
}

func knownSize(k *cluster.Known) int {
	return wire.SizeFixed(k.Of) + wire.SizeUint(k.Pass) + sizePacked(k.Whole)
}

// readMark reads one of the fields that appendMarks writes besides Known, and passes over others.
func readMark(m *cluster.Move, num protowire.Number, f *wire.Fields) {
	switch num {
	case movePass:
		m.Pass = f.Value
	case moveComplete:
		m.Complete = f.Value != 0
	case moveSecret:
		m.Secret = cluster.Secret(f.Value)
	case moveHeard:
		m.Heard = f.Value
	}
}

func readKnown(f wire.Fields) (k cluster.Known, err error) {
	for err == nil && f.Next() {
		if f.Num == knownWhole {
			k.Whole, err = readPartitions(k.Whole, &f)
		} else if f.Num == knownPass {
			k.Pass = f.Value
		} else if f.Num == knownOf {
			k.Of = f.Value
		}
	}
	return k, errors.Join(err, f.Err)
}
