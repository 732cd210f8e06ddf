// Command gin is a web server with Gin that asks Penstock before it answers: 5 requests an hour for
// each user.
package main

import (
	"cmp"
	"flag"
	"log"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

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
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(limited(client.HTTPMiddleware{
		Limiter: limits,
		Limit:   client.FixedLimit("api"),
		Key: func(r *http.Request) string { // a key is never empty
			return cmp.Or(r.Header.Get("X-User"), "anonymous")
		},
	}))
	r.GET("/", func(c *gin.Context) {
		c.String(http.StatusOK, "hello, %s\n", c.GetHeader("X-User"))
	})
	log.Fatal(http.ListenAndServe(*listen, r))
}

// limited is h as Gin's middleware: a request that is not passed on has been answered already.
func limited(h client.HTTPMiddleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		admitted := false
		h.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			admitted, c.Request = true, r
		})).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
			return
		}
		c.Next()
	}
}
