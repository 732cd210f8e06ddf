package web

import (
	"testing"

	"penstock/rpc/rpctest"
)

// Promise: every page of the listeners is in the table of rights, so that none is open, or closed,
// by mistake.
func TestEveryPageHasARight(t *testing.T) {
	w := newWeb(Config{Node: rpctest.Alone(t)})
	m := w.mux()
	w.adminPages(m)
	for path := range m.methods {
		_, byPath := pageRights[path]
		_, byMethod := pageRights["GET "+path]
		if !byPath && !byMethod && !unguarded(path) && path != "/v1/drain" {
			t.Errorf("%s has no right in pageRights", path)
		}
	}
}
