package sim

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestOne(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	p := draw(seed)
	limit, key := os.Getenv("LIMIT"), os.Getenv("KEY")
	w := newWorld(p)
	watch = func(h happening) {
		if limit == "" || h.limit == limit && h.key == key {
			fmt.Println(h)
		}
	}
	w.run()
	for _, r := range w.rules {
		fmt.Printf("%+v\n", r.limit.Spec)
	}
	fmt.Printf("%s %s\n", w.judge.failure.Promise, w.judge.failure.Detail)
}
