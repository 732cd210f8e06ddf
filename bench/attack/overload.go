package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// overloads are attacks on a node that has one processor: so the attacker, which has the others,
// can ask more often than the node can answer.
var overloads = []attack{
	{
		"overload",
		"a client that asks 3 times as often as a node of one processor can answer, over 1000 " +
			"connections",
		"http",
		overload,
	},
	{
		"flood-redis", "64 connections with pipelines of 100 commands without a pause", "redis",
		each(64, greedy),
	},
	{
		"flood-http", "64 connections that send HTTP requests without a pause", "http",
		each(64, floodHTTP("/v1/check?limit=demo&key=greedy", "localhost")),
	},
	{
		"flood-grpc", "16 connections with 64 calls at a time each", "grpc",
		each(16, floodGRPC(callCheck)),
	},
	{
		"flood-stream", "16 streams with 256 requests at a time each", "grpc",
		each(16, floodStream),
	},
	{
		"flood-unknown-http", "64 connections that send HTTP requests without a token", "http",
		each(64, floodHTTP("/v1/check?limit=demo&key=greedy", "localhost")),
	},
	{
		"flood-unknown-metrics", "64 connections that ask for metrics without a token", "http",
		each(64, floodHTTP("/metrics", "localhost")),
	},
	{
		"flood-unknown-grpc", "16 connections with 64 calls at a time each, without a token",
		"grpc",
		each(16, floodGRPC(callCheck)),
	},
	{
		"flood-health-http", "64 connections that ask by HTTP for health", "http",
		each(64, floodHTTP("/healthz", "localhost")),
	},
	{
		"flood-health-grpc", "16 connections with 64 calls for health at a time each", "grpc",
		each(16, floodGRPC(callHealth)),
	},
	{
		"flood-nothing-grpc", "16 connections with 64 calls at a time each, of what is not there",
		"grpc",
		each(16, floodGRPC(callNothing)),
	},
	{
		"flood-page", "64 connections that ask for the page /ui/", "http",
		each(64, floodHTTP("/ui/", "localhost")),
	},
	{
		"flood-host", "64 connections that ask another Host", "http",
		each(64, floodHTTP("/v1/check?limit=demo&key=greedy", "another.example")),
	},
	{
		"flood-metrics", "64 connections that ask for metrics", "http",
		each(64, floodHTTP("/metrics", "localhost")),
	},
}

const (
	overloadAt    = 1000        // connections
	overloadTrial = time.Second // for which the capacity is looked for
	overloadOnset = overloadTrial + time.Second
	floodOnset    = time.Second
)

// offer is how often overload asks, in requests a second; 0: 3 times as often as the node answers.
var offer int

// onset is how long an attack lasts before the client that behaves is asked how it fares. Beside an
// attack with an onset, a node without one says what the machine does to both.
func (a *attack) onset() time.Duration {
	switch {
	case a.name == "overload":
		return overloadOnset
	case strings.HasPrefix(a.name, "flood-"):
		return floodOnset
	}
	return 0
}

// overload finds out how often the node can answer, and then asks 3 times as often. It returns how
// often it should have asked.
func overload(ctx context.Context, v *victim) int64 {
	soon, cancel := context.WithTimeout(ctx, overloadTrial)
	capacity := float64(pace(soon, v, 64, 0)) / overloadTrial.Seconds()
	cancel()
	wanted := 3 * capacity
	if offer > 0 {
		wanted = float64(offer)
	}
	began, node, own := time.Now(), v.share(), ownTime()
	answered := pace(ctx, v, overloadAt, time.Duration(float64(time.Second)*overloadAt/wanted))
	lasted := time.Since(began)
	node, own = v.share().since(node), ownTime()-own
	rate := func(n int64) float64 { return float64(n) / lasted.Seconds() }
	admitted, part := rate(answered-v.overloaded.Load()), func(d time.Duration) float64 {
		return float64(d) / float64(lasted)
	}
	could := part(lasted - node.waited) // of a processor
	v.said = fmt.Sprintf(" (capacity %.0f/s, offered %.0f/s, admitted %.0f/s at a p99 of %.1f ms, "+
		"OVERLOADED %.0f/s; the node had %.2f of a processor and could have had %.2f, the "+
		"attacker had %.2f)", capacity, wanted, admitted, v.admitted.p99(),
		rate(v.overloaded.Load()), part(node.had), could, part(own))
	return int64(wanted * lasted.Seconds())
}

// ownTime is the processor time that this process has used.
func ownTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pace has n connections ask one request after the other, each of them at most once in every, and
// returns how many were answered.
func pace(ctx context.Context, v *victim, n int, every time.Duration) int64 {
	var answered atomic.Int64
	var wg sync.WaitGroup
	v.overloaded.Store(0)
	v.admitted = latencies{}
	for i := range n {
		wg.Go(func() {
			next := time.Now().Add(every * time.Duration(i) / time.Duration(n))
			for ctx.Err() == nil {
				askPaced(ctx, v, &next, every, &answered)
			}
		})
	}
	wg.Wait()
	return answered.Load()
}

// askPaced asks over one connection until that ends.
func askPaced(ctx context.Context, v *victim, next *time.Time, every time.Duration,
	answered *atomic.Int64,
) {
	c := dial(ctx, "tcp", v.http)
	if c == nil {
		time.Sleep(10 * time.Millisecond)
		return
	}
	defer c.Close()
	var refused time.Time
	in := bufio.NewReaderSize(c, 2<<10)
	for {
		time.Sleep(time.Until(*next))
		// what it could not ask in time is lost, as the requests of callers are that gave up
		if *next = next.Add(every); time.Since(*next) > time.Second {
			*next = time.Now()
		}
		asked := time.Now()
		if _, err := io.WriteString(c, "GET /v1/check?limit=demo&key=greedy HTTP/1.1\r\n"+
			"Host: localhost\r\n\r\n"); err != nil {
			return
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answered.Add(1)
		if answer.StatusCode == http.StatusTooManyRequests {
			v.overloaded.Add(1)
			refused = time.Now()
			continue
		}
		if time.Since(v.began) < overloadOnset || asked.Sub(refused) < time.Second {
			continue // the answer before said with Retry-After that this one would come too early
		}
		v.mu.Lock()
		v.admitted.All = append(v.admitted.All, time.Since(asked))
		v.mu.Unlock()
	}
}
