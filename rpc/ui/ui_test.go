package ui

import (
	"io/fs"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// Promise: the page consists of its own files, and of nothing from elsewhere, and it builds nothing
// of markup.
func TestPage(t *testing.T) {
	h := Handler("/ui/")
	for path, kind := range map[string]string{
		"/ui/": "text/html", "/ui/page.js": "text/javascript", "/ui/page.css": "text/css",
	} {
		rw := httptest.NewRecorder()
		h.ServeHTTP(rw, httptest.NewRequest("GET", path, nil))
		if rw.Code != 200 || !strings.HasPrefix(rw.Header().Get("Content-Type"), kind) ||
			rw.Body.Len() < 500 ||
			!strings.HasPrefix(rw.Header().Get("Content-Security-Policy"), "default-src 'none'; "+
				"script-src 'self'") {
			t.Errorf("%s: %d %v", path, rw.Code, rw.Header())
		}
	}
	for _, path := range []string{"/ui/ui.go", "/ui/none"} {
		rw := httptest.NewRecorder()
		if h.ServeHTTP(rw, httptest.NewRequest("GET", path, nil)); rw.Code != 404 {
			t.Errorf("%s: %d", path, rw.Code)
		}
	}
	foreign := regexp.MustCompile(
		`https?://|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(| style=| on[a-z]+=`)
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := fs.ReadFile(files, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if found := foreign.FindString(string(text)); found != "" {
			t.Errorf("%s has %q", e.Name(), found)
		}
	}
	named := regexp.MustCompile(`at\("([a-z-]+)"\)`)
	html, err := fs.ReadFile(files, "index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := fs.ReadFile(files, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(html), `id="`+m[1]+`"`) {
				t.Errorf("%s speaks of %s, and the page has none", e.Name(), m[1])
			}
		}
	}
	live := regexp.MustCompile(`role="(status|alert|log|timer)"|aria-live="(polite|assertive)"`)
	if n := len(live.FindAll(html, -1)); n != 6 {
		t.Errorf("%d places are read out as they change; the 6 known ones change rarely", n)
	}
}
