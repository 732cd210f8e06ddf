package web

import (
	"strings"

	"penstock/rpc/door"
	"penstock/rpc/page"
)

// ofQuery names the fields of a request with one item as its query does: key, and not items[0].key.
func ofQuery(err error) error {
	if err == nil {
		return nil
	}
	f := door.Explain(err)
	f.Field = strings.TrimPrefix(f.Field, "items[0].")
	f.Text = strings.Replace(f.Text, "items[0].", "", 1)
	return &f
}

// exceeded is the body of a 429: why, and the decision's own fields.
type exceeded struct {
	page.Problem
	Violated []string `json:"violated-policies"`
	DecisionJSON
}

// exceededTogether is the body of a 429 by rules.
type exceededTogether struct {
	page.Problem
	Violated []string `json:"violated-policies"`
	DecisionsJSON
}

func exceededProblem(status int, detail string) page.Problem {
	return page.Problem{
		Type: quotaExceeded, Status: status,
		Title: "Request cannot be satisfied as assigned quota has been exceeded", Detail: detail,
	}
}

// quotaExceeded is registered by the IETF draft on RateLimit fields.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
