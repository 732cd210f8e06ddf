//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// suspended are the signals that stop a process, and that can be caught.
var suspended = []os.Signal{syscall.SIGTSTP}

// suspend stops this process, and returns when it goes on. Another thread may get the signal, so
// this one would run on for a moment: it waits for the signal to go on.
func suspend() {
	on := make(chan os.Signal, 1)
	signal.Notify(on, syscall.SIGCONT)
	defer signal.Stop(on)
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		<-on
	}
}
