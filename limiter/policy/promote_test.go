package policy

import (
	"strings"
	"testing"
)

// Promise: the candidate's fields stand in the place of the limit's, comments and other limits stay
// as they are, and the file says afterwards what the candidate said.
func TestPromoteRewritesTheFile(t *testing.T) {
	const before = `# our limits
limits:
  - name: login   # people
    algorithm: fixed_window
    limit: 10
    per: 1m
    anchor: first_hit
    candidate: {limit: 5, count_rejected: true}
    on_error: deny   # rather no than yes

  # the rest
  - algorithm: fixed_window
    anchor: epoch
    candidate:
      algorithm: gcra
      per: 1s
      overrides:
        - {key: "pro/*", limit: 50}
    name: api
    limit: 100
    per: minute
    overrides:
      - key: "pro/*"
        limit: 500
  - {name: flow, algorithm: gcra, limit: 9, per: 1m, candidate: {limit: 5}}
`
	for name, want := range map[string]string{
		"login": strings.Replace(strings.Replace(before, "    limit: 10\n", "    limit: 5\n", 1),
			"    candidate: {limit: 5, count_rejected: true}\n", "    count_rejected: true\n", 1),
		"api": before[:strings.Index(before, "  - algorithm")] + `  - algorithm: gcra
    name: api
    limit: 100
    per: 1s
    overrides:
      - {key: "pro/*", limit: 50}
  - {name: flow, algorithm: gcra, limit: 9, per: 1m, candidate: {limit: 5}}
`,
	} {
		got, err := Promote("f", []byte(before), name)
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
	for name, want := range map[string]string{
		"flow":    "write each of its fields on a line of its own",
		"nothing": `f has no limit named "nothing"`,
	} {
		if _, err := Promote("f", []byte(before), name); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", name, err, want)
		}
	}
	_, err := Promote(
		"f",
		[]byte("limits:\n  - {name: a, algorithm: gcra, limit: 9, per: 1m}\n"),
		"a",
	)
	if err == nil || !strings.Contains(err.Error(), "has no candidate to promote") {
		t.Errorf("without a candidate: %v", err)
	}
}
