package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"penstock/cluster"
)

// serveVerb runs one node until a signal.
type serveVerb struct {
	Config string `type:"path" placeholder:"FILE" help:"YAML file with the values of flags, by their names without dashes. Flags and variables override it."`
	settings
}

// Help is printed below the verb's line.
func (serveVerb) Help() string {
	return "Every flag is also read from the environment: --peer-tls-cert from " +
		"PENSTOCK_PEER_TLS_CERT. A flag overrides " +
		"the variable, the variable the --config file, and the file the default. " +
		"SIGTERM takes the node out " +
		"gracefully, SIGHUP reads the limits again."
}

const (
	// stopGrace is how long a leaving node goes on answering, so that others and load balancers
	// notice.
	stopGrace = time.Second
	// stopBudget bounds a graceful stop. Orchestrators kill after 10 s or more.
	stopBudget = 8 * time.Second
)

// slack is how many bytes of garbage a node makes before it collects them, besides as many as it
// has in use, which are few: what it counts in lies elsewhere. Without it a busy node would collect
// a hundred times a second.
const slack = 16 << 20

// limitHeap has the runtime collect garbage more often when the heap comes near what the budget has
// for it. Counters lie outside of the heap. GOMEMLIMIT overrides it.
func limitHeap(memory size) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(slack + unfinished(memory) + heapRoom)
	}
}

// heapRoom is for all that a node keeps on the heap beside unfinished requests.
const heapRoom = 64 << 20

func (v *serveVerb) Run(sh shell) error {
	if v.Failover == 0 { // demo and bench, which say nothing, mean the default
		return fmt.Errorf("--failover 0s: give %v to %v", cluster.LeastFailover,
			cluster.MostFailover)
	}
	limitHeap(v.Memory)
	// is believed to be in use; nobody touches it, so it takes no memory
	unused := make([]byte, slack)
	defer runtime.KeepAlive(unused)
	log := newLogger(sh.err, v.of(sh.err), levelOf(v.LogLevel))
	slog.SetDefault(log) // for the rooms that are given no logger
	// Apart, since a channel that is full loses signals: a SIGTERM must not be one of them.
	signals, reloads := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(reloads, syscall.SIGHUP)
	defer signal.Stop(signals)
	defer signal.Stop(reloads)

	v.settings.onIdle = new(threads).idle
	r, err := start(context.Background(), v.settings, log)
	var taken *inUseError
	if errors.As(err, &taken) {
		return fmt.Errorf("%w; stop that, or give %s another address", err, taken.flag)
	}
	if err != nil {
		return err
	}
	go r.reloadAt(reloads)
	var tidy tidier
	calm := time.NewTicker(tidyEvery)
	defer calm.Stop()
	for {
		select {
		case <-calm.C:
			tidy.look(r.node.Stats().Changes())
		case s := <-signals:
			log.Info("stopping; a second signal stops at once", "signal", s.String())
			return stopUnlessHurried(r, signals)
		case err := <-r.failed:
			log.Error("stopping, because this node cannot go on", "err", err)
			_ = stopUnlessHurried(r, signals)
			return err
		}
	}
}

// reloadAt reads files again at each signal, until the node leaves. Those that come meanwhile are
// one. The node can stop while files are read, however long that takes.
func (r *running) reloadAt(signals <-chan os.Signal) {
	for {
		select {
		case <-signals:
			r.files.reload()
		case <-r.leaving.Done():
			return
		}
	}
}

// sameSignal is how long further signals to stop count as the first one. timeout(1) sends its
// signal to the process and to the process's group; some parents pass on the Ctrl-C that a terminal
// has sent to all.
const sameSignal = 200 * time.Millisecond

// stopUnlessHurried stops r gracefully, or leaves everything as it is at the next signal to stop.
func stopUnlessHurried(r *running, signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopBudget)
	defer cancel()
	done, began := make(chan struct{}), time.Now()
	go func() {
		defer close(done)
		r.stop(ctx, stopGrace)
	}()
	for {
		select {
		case <-done:
			r.log.Info("stopped")
			return nil
		case <-signals:
			if time.Since(began) > sameSignal {
				r.log.Warn("stopped at once by a second signal")
				return exitCode(1)
			}
		}
	}
}
