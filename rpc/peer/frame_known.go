package peer

import (
	"errors"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/rpc/wire"
)

// Field numbers of peer.proto for what tells the newer one of two copies, and of a secret.
const (
	movePass, moveComplete, moveKnown, moveSecret, moveHeard = 24, 25, 26, 27, 28
	moveStored, moveUp                                       = 29, 30

	knownOf, knownPass, knownWhole = 1, 2, 3
)

// appendMarks writes how far the copies of m are, and the secret that it goes by.
func appendMarks(b []byte, m *cluster.Move) []byte {
	b = wire.AppendBool(wire.AppendUint(b, movePass, m.Pass), moveComplete, m.Complete)
	for i := range m.Known {
		k := &m.Known[i]
		var end int
		b, end = wire.Open(b, moveKnown)
		b = wire.AppendUint(wire.AppendFixed(b, knownOf, k.Of), knownPass, k.Pass)
		b = wire.Close(appendPartitions(b, knownWhole, k.Whole), end)
	}
	b = wire.AppendUint(wire.AppendFixed(b, moveSecret, uint64(m.Secret)), moveHeard, m.Heard)
	b = wire.AppendUint(b, moveStored, uint64(max(0, m.Stored)))
	return wire.AppendUint(b, moveUp, uint64(max(0, m.Up)))
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
	case moveStored:
		m.Stored = time.Duration(min(f.Value, math.MaxInt64))
	case moveUp:
		m.Up = time.Duration(min(f.Value, math.MaxInt64))
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
