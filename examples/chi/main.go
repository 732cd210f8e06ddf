// Command chi is a web server with chi's router that asks Penstock before it answers: 5 requests an
// hour for each user.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"penstock/rpc/client"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "host:port to serve on")
	nodes := flag.String("penstock", "127.0.0.1:7948", "gRPC doors of Penstock nodes, with "+
		"commas between them")
	flag.Parse()
	limits, err := client.New(client.Config{
		Targets: strings.Split(*nodes, ","),
		OnError: client.FailOpen,
	})
	if err != nil {
		log.Fatal(err)
	}
	r := chi.NewRouter()
	r.Use(client.HTTPMiddleware{
		Limiter: limits,
		Limit:   client.FixedLimit("api"),
		Key: func(r *http.Request) string { // a key is never empty
			return cmp.Or(r.Header.Get("X-User"), "anonymous")
		},
	}.Wrap)
	r.Get("/", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(rw, "hello,", r.Header.Get("X-User"))
	})
	log.Fatal(http.ListenAndServe(*listen, r))
}
