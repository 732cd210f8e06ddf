package peer

import (
	"encoding/binary"
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/rpc/wire"
)

func appendMoveAnswer(b []byte, m *cluster.MoveAnswer) []byte {
	b, begin := wire.Open(b, answerMove)
	b = wire.AppendUint(b, movedTerm, m.Term)
	if n := len(m.Standings); n > 0 {
		b = wire.AppendHead(b, movedStandings, n)
		for _, s := range m.Standings {
			b = append(b, byte(s))
		}
	}
	b = appendPartitions(b, movedRefused, m.Refused)
	b = wire.AppendBool(b, movedApplied, m.Applied)
	b = wire.AppendUint(b, movedUp, uint64(max(0, m.Up)))
	b = appendEpoch(b, movedEpoch, m.Epoch)
	b = appendPartitions(b, movedWhole, m.Whole)
	return wire.Close(wire.AppendBool(b, movedBlank, m.Blank), begin)
}

// appendBoots writes a packed list.
func appendBoots[T ~uint64](b []byte, num protowire.Number, list []T) []byte {
	if len(list) == 0 {
		return b
	}
	b = wire.AppendHead(b, num, 8*len(list))
	for _, boot := range list {
		b = protowire.AppendFixed64(b, uint64(boot))
	}
	return b
}

func readMoveAnswer(b []byte, memo *lineageMemo) (*cluster.MoveAnswer, error) {
	m := new(cluster.MoveAnswer)
	f := wire.Fields{Rest: b}
	var err error
	for f.Next() && err == nil {
		switch f.Num {
		case movedTerm:
			m.Term = f.Value
		case movedStandings:
			for _, s := range f.Bytes {
				// a number of a later release is busy: nobody takes the partition for free
				m.Standings = append(m.Standings, standing(s))
			}
		case movedRefused:
			m.Refused, err = readPartitions(m.Refused, &f)
		case movedApplied:
			m.Applied = f.Value != 0
		case movedUp:
			m.Up = time.Duration(f.Value)
		case movedBlank:
			m.Blank = f.Value != 0
		case movedWhole:
			m.Whole, err = readPartitions(m.Whole, &f)
		case movedEpoch:
			m.Epoch, err = memo.readEpoch(f.Bytes)
		}
	}
	return m, errors.Join(err, f.Err)
}

// readBoots appends a packed list, or a single one of a list that is not; more than mostBoots are
// not read.
func readBoots(list []uint64, f *wire.Fields) []uint64 {
	if f.Wire == protowire.Fixed64Type {
		return append(list, f.Value)
	}
	for b := f.Bytes; len(b) >= 8 && len(list) < mostBoots; b = b[8:] {
		list = append(list, binary.LittleEndian.Uint64(b))
	}
	return list
}

const mostBoots = 1 << 16

// standing takes what it does not know for busy, which decides nothing.
func standing(b byte) cluster.Standing {
	if s := cluster.Standing(b); s <= cluster.StandingBereft {
		return s
	}
	return cluster.StandingBusy
}
