// Command echo is a web server with Echo that asks Penstock before it answers: 5 requests an hour
// for each user.
package main

import (
	"cmp"
	"flag"
	"log"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

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
	e := echo.New()
	e.Use(echo.WrapMiddleware(client.HTTPMiddleware{
		Limiter: limits,
		Limit:   client.FixedLimit("api"),
		Key: func(r *http.Request) string { // a key is never empty
			return cmp.Or(r.Header.Get("X-User"), "anonymous")
		},
	}.Wrap))
	e.GET("/", func(c echo.Context) error {
		return c.String(http.StatusOK, "hello, "+c.Request().Header.Get("X-User")+"\n")
	})
	log.Fatal(http.ListenAndServe(*listen, e))
}
