package sim

import (
	"os"
	"testing"
)

func TestDev(t *testing.T) {
	for seed := range uint64(300) {
		r := Run(seed)
		if !r.OK() {
			r.WriteText(os.Stdout)
			t.Fatal()
		}
	}
}
