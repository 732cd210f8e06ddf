// Command embedded is a web server with a node of Penstock inside: 5 requests an hour for each
// user, over all servers that have joined each other.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"penstock/embedded"
	"penstock/limiter"
	"penstock/rpc/client"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "host:port to serve on")
	gossip := flag.String("gossip", "", "host:port by which servers find each other; empty: this "+
		"one is alone")
	join := flag.String("join", "", "--gossip of servers to join, with commas between them")
	flag.Parse()
	c := embedded.Config{
		Name:   *listen,
		Gossip: *gossip,
		Limits: []limiter.Spec{{
			Name: "api", Algorithm: limiter.FixedWindow,
			Anchor: limiter.FirstHit, Limit: 5, Per: time.Hour,
		}},
	}
	if *join != "" {
		c.Join = strings.Split(*join, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	node, err := embedded.Start(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	limited := client.HTTPMiddleware{
		Limiter: node,
		Limit:   client.FixedLimit("api"),
		Key: func(r *http.Request) string { // a key is never empty
			return cmp.Or(r.Header.Get("X-User"), "anonymous")
		},
	}
	http.Handle("/", limited.Wrap(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Write([]byte("hello, " + r.Header.Get("X-User") + "\n"))
	})))
	server, served := &http.Server{Addr: *listen}, make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case <-ctx.Done(): // a signal
	case err = <-node.Failed():
	case err = <-served:
	}
	// Requests under way end, and the other servers take over what this one has counted.
	leave, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := errors.Join(err, server.Shutdown(leave), node.Close(leave)); err != nil {
		log.Fatal(err)
	}
}
