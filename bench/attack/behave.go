package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"
)

// latencies are the answers to a client that behaves.
type latencies struct {
	All           []time.Duration
	Asked, Failed int
}

// p99 is in milliseconds.
func (l *latencies) p99() float64 {
	if len(l.All) == 0 {
		return 0
	}
	slices.Sort(l.All)
	return l.All[len(l.All)*99/100].Seconds() * 1000
}

// behave has a process of its own ask for so long: beside hundreds of goroutines that attack
// without a pause, a client in their process would wait for them, and not for the node.
func behave(address string, length time.Duration) (l latencies) {
	self, err := os.Executable()
	if err != nil {
		return l
	}
	child := exec.Command(self, "-behave", address, "-for", length.String())
	child.Stderr = os.Stderr
	if text, err := child.Output(); err == nil {
		_ = json.Unmarshal(text, &l)
	}
	return l
}

// ask asks 100 times a second from an address of its own, and prints latencies.
func ask(address string, length time.Duration) error {
	var l latencies
	c := &http.Client{Timeout: 2 * time.Second, Transport: from("127.0.0.2")}
	defer c.CloseIdleConnections()
	for end, i := time.Now().Add(length), 0; time.Now().Before(end); i++ {
		began := time.Now()
		answer, err := c.Get(fmt.Sprintf("http://%s/v1/check?limit=demo&key=good%d", address, i))
		l.Asked++
		if err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		if err != nil || answer.StatusCode != http.StatusOK {
			l.Failed++
		}
		l.All = append(l.All, time.Since(began))
		time.Sleep(max(0, 10*time.Millisecond-time.Since(began)))
	}
	return json.NewEncoder(os.Stdout).Encode(l)
}
