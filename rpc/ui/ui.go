// Package ui is the web page of a node: the whole cluster with its checks, events, limits, keys and
// holds. The page is static. Its scripts get the data from the node, with the reader's token if the
// node wants one: page.js listens to it (node.js), and graph.js, ring.js, failures.js, tables.js
// and key.js draw a part each. So the page itself is no secret, and it loads nothing from
// elsewhere.
package ui

import (
	"embed"
	"net/http"
)

//go:embed index.html page.css *.js
var files embed.FS

// Handler serves the page below a path like /ui/.
func Handler(path string) http.Handler {
	serve := http.StripPrefix(path, http.FileServerFS(files))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src "+
			"'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "+
			"'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		serve.ServeHTTP(rw, r)
	})
}
