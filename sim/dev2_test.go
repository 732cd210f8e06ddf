package sim

import (
	"os"
	"runtime"
	"strconv"
	"testing"
)

func TestMany(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("N"))
	from, _ := strconv.ParseUint(os.Getenv("FROM"), 10, 64)
	s := Check(from, n, runtime.GOMAXPROCS(0), nil)
	s.WriteText(os.Stdout)
}
