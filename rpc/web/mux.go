package web

import (
	"fmt"
	"net/http"
	"strings"

	"penstock/rpc/page"
)

// mux says in its own words what it does not have.
type mux struct {
	*http.ServeMux
	methods   map[string]string // path → Allow
	elsewhere *mux              // pages that are served at --admin, or nil
}

func newMux() *mux {
	return &mux{ServeMux: http.NewServeMux(), methods: make(map[string]string)}
}

// hint says where else the page is that r asks for.
func (m *mux) hint(r *http.Request) string {
	if m.elsewhere != nil {
		if _, pattern := m.elsewhere.Handler(r); pattern != "" {
			return "; it is served at --admin alone, if that is not off"
		}
	}
	return ""
}

// handle adds "METHOD /path", and an answer to other methods of that path.
func (m *mux) handle(pattern string, h http.HandlerFunc) {
	method, path, _ := strings.Cut(pattern, " ")
	if method == http.MethodGet {
		method += ", " + http.MethodHead
	}
	m.HandleFunc(pattern, h)
	m.allow(method, path)
}

// handleCharge is handle for a GET that charges. Monitors and crawlers take HEAD for a question
// that costs nothing, and get no body that could say more, so HEAD is refused there.
func (m *mux) handleCharge(pattern string, h http.HandlerFunc) {
	method, path, _ := strings.Cut(pattern, " ")
	m.HandleFunc(pattern, h)
	m.HandleFunc(http.MethodHead+" "+path, m.refuseMethod(path))
	m.allow(method, path)
}

// allow notes a method of path.
func (m *mux) allow(method, path string) {
	if allowed, known := m.methods[path]; known {
		m.methods[path] = allowed + ", " + method
		return
	}
	m.methods[path] = method
	m.HandleFunc(path, m.refuseMethod(path))
}

func (m *mux) refuseMethod(path string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Allow", m.methods[path])
		page.WriteProblem(rw, &page.Problem{
			Status: http.StatusMethodNotAllowed, Title: "Method Not Allowed",
			Detail: fmt.Sprintf("method: %.20s is not for %s; use %s", r.Method, path,
				m.methods[path]),
		})
	}
}
