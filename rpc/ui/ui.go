// Package ui is the page of a node: who is in its cluster, what it decides, which keys have used most, and a place to look
// one up. It is static; what it shows it asks the node for (page.js), with the token that its reader gives it, if the node
// wants one. So the page itself is no secret, and nothing of it comes from elsewhere.
package ui

import (
	"embed"
	"net/http"
)

//go:embed index.html page.js page.css
var files embed.FS

// Handler serves the page below a path like /ui/.
func Handler(path string) http.Handler {
	serve := http.StripPrefix(path, http.FileServerFS(files))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		serve.ServeHTTP(rw, r)
	})
}
