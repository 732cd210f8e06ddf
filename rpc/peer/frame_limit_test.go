package peer

import (
	"strings"
	"testing"

	peerv1 "penstock/proto/penstock/peer/v1"
	"penstock/rpc/door"
)

// Promise: hostile or malformed input: a clear error. What a move says of a limit that its frame
// has not brought is refused from the first number on that is none.
func TestMovesNameLimitsOfTheirFrame(t *testing.T) {
	key, state := []byte("k"), []byte{8, 1, 18, 1, 2}
	for name, of := range map[string]func(limit uint32) *peerv1.Move{
		"an entry": func(limit uint32) *peerv1.Move {
			return &peerv1.Move{Entries: []*peerv1.Entry{{Limit: limit, Key: key, State: state}}}
		},
		"a charge": func(limit uint32) *peerv1.Move {
			return &peerv1.Move{Charges: []*peerv1.Charge{{Limit: limit, Key: key, Units: 1}}}
		},
		"a hold": func(limit uint32) *peerv1.Move {
			return &peerv1.Move{Holds: []*peerv1.Hold{
				{Limit: limit, Key: key, Origin: 1, Sequence: 1, Units: 1, LeftNs: 1, State: 1},
			}}
		},
	} {
		for limit := range uint32(3) {
			f := goodFrame()
			m := of(limit)
			m.From, m.To, m.Id = 2, 1, []byte("n2")
			f.Asks[0].Move = m
			asks, err := readFrame(&frameReader{known: new(door.LimitCache)}, frameOf(t, f), 0)
			if err != nil || len(asks) != 2 || asks[1].err != "" {
				t.Fatalf("%s under limit %d: %d asks, error %v", name, limit, len(asks), err)
			}
			if bad := strings.Contains(asks[0].err, "has "+name+" with limit"); bad != (limit > 0) {
				t.Errorf("%s under limit %d of 1: %q", name, limit, asks[0].err)
			}
		}
	}
}
