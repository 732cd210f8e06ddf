package sim

import (
	"fmt"
	"testing"
)

func TestList(t *testing.T) {
	for _, s := range []uint64{1023, 1417, 1645, 1679, 1757, 1925} {
		r := Run(s)
		if r.Failure != nil {
			fmt.Println(s, r.World.Sky, r.Failure.Promise, r.Failure.Detail)
		}
	}
}
