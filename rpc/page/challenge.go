package page

import (
	"net/http"

	"penstock/rpc/door"
)

// Challenged is the header of an answer to a client that is unknown, or lacks a right, in its
// canonical form: RFC 6750.
const Challenged = "Www-Authenticate"

const bearer, scope = "Bearer", `Bearer error="insufficient_scope"`

// Challenge says in header that the client is unknown, or lacks a right, if f does.
func Challenge(header http.Header, f *door.Fault) {
	switch {
	case f.Status == http.StatusUnauthorized:
		header[Challenged] = []string{bearer}
	case f.Right != "":
		header[Challenged] = []string{scope}
	}
}

// IsUnknown reports whether an answer that is Challenged says that the client is unknown.
func IsUnknown(header http.Header) bool { return header.Get(Challenged) == bearer }
