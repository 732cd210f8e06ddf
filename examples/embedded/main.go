// Command embedded is a web server with a node of Penstock inside: 5 requests an hour for each
// user, over all servers that have joined each other.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"strings"
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
	node, err := embedded.Start(context.Background(), c)
	if err != nil {
		log.Fatal(err)
	}
	limited := client.HTTPMiddleware{
		Limiter: node,
		Limit:   client.FixedLimit("api"),
		Key:     func(r *http.Request) string { return r.Header.Get("X-User") },
	}
	http.Handle("/", limited.Wrap(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Write([]byte("hello, " + r.Header.Get("X-User") + "\n"))
	})))
	log.Fatal(http.ListenAndServe(*listen, nil))
}
