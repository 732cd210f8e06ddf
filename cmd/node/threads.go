package main

import (
	"os"
	"runtime"
)

// threads has a process of which nobody asks anything run one thread of Go code at a time. With
// more, each goroutine that becomes ready wakes another thread, which finds nothing to do: a fifth
// of what an idle node costs. All run again as soon as a request comes, which may wait a while
// for that.
//
// A number that follows the load of a node that is asked was tried, and was worse (see
// docs/performance.md): a burst that began with one thread had to wait.
type threads struct {
	awake int // how many there were before; 0: there are all
}

// idle is told so by the node, once at a time.
func (t *threads) idle(is bool) {
	switch {
	case is && t.awake == 0:
		t.awake = runtime.GOMAXPROCS(1)
	case !is && t.awake != 0:
		if os.Getenv("GOMAXPROCS") == "" {
			runtime.SetDefaultGOMAXPROCS() // it follows what the machine allows
		} else {
			runtime.GOMAXPROCS(t.awake)
		}
		t.awake = 0
	}
}
