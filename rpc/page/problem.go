package web

import (
	"net/http"
	"strings"

	"penstock/rpc/door"
)

// Problem is an answer of RFC 9457, application/problem+json. Fields says where a request is wrong.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"`
	Right  string `json:"missing_right,omitempty"` // that the client lacks
}

func writeProblem(rw http.ResponseWriter, p *Problem) {
	if p.Type == "" {
		p.Type = "about:blank"
	}
	writeProblemJSON(rw, p.Status, p)
}

func writeProblemJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/problem+json")
	writeJSON(rw, status, v)
}

// writeFault says that nothing was decided and nothing charged.
func writeFault(rw http.ResponseWriter, f door.Fault) {
	if f.Status == http.StatusUnauthorized {
		rw.Header().Set("WWW-Authenticate", "Bearer")
	}
	if f.Type == door.Overloaded {
		rw.Header().Set("Retry-After", "1")
	}
	writeProblem(rw, &Problem{
		Type: f.Type, Title: http.StatusText(f.Status), Status: f.Status, Detail: f.Text,
		Field: f.Field, Right: f.Right,
	})
}

// WriteError says an error of Node.Check as HTTP carries it.
func WriteError(rw http.ResponseWriter, err error) { writeFault(rw, door.Explain(err)) }

// ofQuery names the fields of a request with one item as its query does: key, and not items[0].key.
func ofQuery(f door.Fault) door.Fault {
	f.Field = strings.TrimPrefix(f.Field, "items[0].")
	f.Text = strings.Replace(f.Text, "items[0].", "", 1)
	return f
}

// exceeded is the body of a 429: why, and the decision's own fields.
type exceeded struct {
	Problem
	Violated []string `json:"violated-policies"`
	DecisionJSON
}

// exceededTogether is the body of a 429 by rules.
type exceededTogether struct {
	Problem
	Violated []string `json:"violated-policies"`
	DecisionsJSON
}

func exceededProblem(status int, detail string) Problem {
	return Problem{
		Type: quotaExceeded, Status: status,
		Title: "Request cannot be satisfied as assigned quota has been exceeded", Detail: detail,
	}
}

// quotaExceeded is registered by the IETF draft on RateLimit fields.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
