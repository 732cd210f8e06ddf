package web

import (
	"maps"
	"net/http"
	"slices"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/admin"
	"penstock/rpc/catalog"
	"penstock/rpc/notation"
)

// limits is GET /v1/limits.
func (w *web) limits(_ http.ResponseWriter, _ *http.Request) (any, error) {
	out := admin.NamedLimits{Node: w.Node.ID(), Limits: []admin.NamedLimit{}}
	limits, tallies := w.Node.Limits(), w.Node.Stats().Candidates()
	checks := w.Node.LimitTallies()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		row := w.namedLimit(limits[name], tallies[name])
		row.Count(checks[name])
		out.Limits = append(out.Limits, row)
	}
	return out, nil
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

// doneBy says what came of a change.
func (w *web) doneBy(out catalog.Outcome, err error) (any, error) {
	return limitDone{
		w.Node.ID(), out.Replaced, out.Version.String(), out.Reached, out.Missing,
	}, err
}

// putLimit is PUT /v1/limits?version=: the body is the limit, in the words of the limits' files.
func (w *web) putLimit(rw http.ResponseWriter, r *http.Request) (any, error) {
	q, err := readQuery(r, "version")
	if err != nil {
		return nil, err
	}
	l, err := w.limitIn(rw, r)
	if err != nil {
		return nil, err
	}
	return w.doneBy(w.change(r, q["version"]).Put(l))
}

// limitIn is the limit of a body.
func (w *web) limitIn(rw http.ResponseWriter, r *http.Request) (*limiter.Limit, error) {
	in, err := readJSON[putJSON](rw, r, "a limit has the fields that it has in a file")
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
	return answered(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		q, err := readQuery(r, append(further, "name", "version")...)
		if err == nil && q["name"] == "" {
			err = queryFault("name", "is missing; name a limit")
		}
		if err != nil {
			return nil, err
		}
		return w.doneBy(how(w.change(r, q["version"]), q))
	})
}

// historyPage is GET /v1/limits/history?name=: the last changes of one limit, or of all.
func (w *web) historyPage(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := readQuery(r, "name")
	if err != nil {
		return nil, err
	}
	list := w.Catalog.History(q["name"])
	if list == nil {
		list = []catalog.Entry{}
	}
	return limitHistory{w.Node.ID(), list}, nil
}

// limitHistory is GET /v1/limits/history.
type limitHistory struct {
	Node    string          `json:"node"`
	Entries []catalog.Entry `json:"entries"`
}
