package web

import (
	"maps"
	"net/http"
	"slices"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/admin"
	"penstock/rpc/catalog"
	"penstock/rpc/door"
	"penstock/rpc/notation"
	"penstock/rpc/page"
)

// limits is GET /v1/limits.
func (w *web) limits(rw http.ResponseWriter, _ *http.Request) {
	out := admin.NamedLimits{Node: w.Node.ID(), Limits: []admin.NamedLimit{}}
	limits, tallies := w.Node.Limits(), w.Node.Stats().Candidates()
	checks := w.Node.LimitTallies()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		row := w.namedLimit(limits[name], tallies[name])
		row.Count(checks[name])
		out.Limits = append(out.Limits, row)
	}
	page.JSON(rw, http.StatusOK, out)
}

// namedLimit is a limit without counts.
func (w *web) namedLimit(l *limiter.Limit, tried cluster.CandidateTally) admin.NamedLimit {
	row := admin.NamedLimit{
		LimitJSON: notation.NewLimitJSON(&l.Spec), WordsJSON: notation.NewWordsJSON(&l.Spec),
		Put: w.Node.IsPut(l.Name), Overrides: len(l.Overrides()),
		Candidate: admin.NewCandidateJSON(l, tried),
	}
	if row.Put {
		head := w.Catalog.Head(l.Name)
		row.Version, row.By, row.AtMs = head.Version.String(), head.By, head.AtMs
		row.OverFile = w.Node.Given(l.Name) != nil
	}
	return row
}

func (w *web) change(r *http.Request, version string) admin.Change {
	return admin.NewChange(r.Context(), w.Catalog, w.Node, w.recorder(r), version)
}

// limitDone says where a change of limits is in force now.
type limitDone struct {
	Node     string   `json:"node"`
	Replaced bool     `json:"replaced,omitzero"` // one was put already
	Version  string   `json:"version"`
	Reached  int      `json:"reached"` // other nodes
	Missing  []string `json:"missing"` // nodes that have not answered
}

// answerChange writes what came of a change.
func (w *web) answerChange(rw http.ResponseWriter, out catalog.Outcome, err error) {
	if err != nil {
		page.Fault(rw, bodyFault(err, false))
		return
	}
	page.JSON(
		rw,
		http.StatusOK,
		limitDone{w.Node.ID(), out.Replaced, out.Version.String(), out.Reached, out.Missing},
	)
}

// putLimit is PUT /v1/limits?version=: the body is the limit, in the words of the limits' files.
func (w *web) putLimit(rw http.ResponseWriter, r *http.Request) {
	q, f := readQuery(r, "version")
	if f != nil {
		page.Fault(rw, *f)
		return
	}
	l, err := w.limitIn(rw, r)
	var out catalog.Outcome
	if err == nil {
		out, err = w.change(r, q["version"]).Put(l)
	}
	w.answerChange(rw, out, err)
}

// limitIn is the limit of a body.
func (w *web) limitIn(rw http.ResponseWriter, r *http.Request) (*limiter.Limit, error) {
	in, err := readJSON[putJSON](
		rw,
		r,
		"a limit has the fields that it has in a file",
	)
	if err != nil {
		return nil, err
	}
	s, err := in.spec()
	if err != nil {
		return nil, admin.UnderLimit(err)
	}
	tried, err := in.candidate()
	if err != nil {
		return nil, admin.UnderLimit(err)
	}
	overrides, err := in.overrides()
	if err != nil {
		return nil, admin.UnderLimit(err)
	}
	return admin.CheckedLimit(s, overrides, tried)
}

// limitNamed is a page ?name=&version=& that changes the limit of that name; further fields of the
// query are how's.
func (w *web) limitNamed(
	how func(c admin.Change, q map[string]string) (catalog.Outcome, error), further ...string,
) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		q, f := readQuery(r, append(further, "name", "version")...)
		if f == nil && q["name"] == "" {
			f = &door.Fault{
				Status: http.StatusBadRequest, Field: "name",
				Text: "name: is missing; name a limit",
			}
		}
		if f != nil {
			page.Fault(rw, *f)
			return
		}
		out, err := how(w.change(r, q["version"]), q)
		w.answerChange(rw, out, err)
	}
}

// historyPage is GET /v1/limits/history?name=: the last changes of one limit, or of all.
func (w *web) historyPage(rw http.ResponseWriter, r *http.Request) {
	q, f := readQuery(r, "name")
	if f != nil {
		page.Fault(rw, *f)
		return
	}
	list := w.Catalog.History(q["name"])
	if list == nil {
		list = []catalog.Entry{}
	}
	page.JSON(rw, http.StatusOK, limitHistory{w.Node.ID(), list})
}

// limitHistory is GET /v1/limits/history.
type limitHistory struct {
	Node    string          `json:"node"`
	Entries []catalog.Entry `json:"entries"`
}
