package web

import (
	"maps"
	"net/http"
	"slices"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/admin"
	"penstock/rpc/audit"
	"penstock/rpc/catalog"
	"penstock/rpc/notation"
)

// limitPages show the named limits, and change those that are put.
type limitPages struct {
	node    *cluster.Node
	catalog *catalog.Catalog
	audit   *audit.Log
}

// addTo adds the pages to m.
func (p *limitPages) addTo(m *mux, lists *operating) {
	m.handle("GET /v1/limits", lists.answered(p.list))
	m.handle("PUT /v1/limits", answered(p.put))
	m.handle("DELETE /v1/limits", p.changed(admin.Change.Remove))
	m.handle("POST /v1/limits/promote", p.changed(admin.Change.Promote))
	m.handle("POST /v1/limits/rollback", answered(p.rollback))
	m.handle("GET /v1/limits/history", lists.answered(p.history))
}

// list is GET /v1/limits.
func (p *limitPages) list(_ http.ResponseWriter, _ *http.Request) (any, error) {
	out := admin.NamedLimits{Node: p.node.ID(), Limits: []admin.NamedLimit{}}
	limits, tallies := p.node.Limits(), p.node.Stats().Candidates()
	checks := p.node.LimitTallies()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		row := p.row(limits[name], tallies[name])
		row.Count(checks[name])
		out.Limits = append(out.Limits, row)
	}
	return out, nil
}

// row is a limit without counts.
func (p *limitPages) row(l *limiter.Limit, tried cluster.CandidateTally) admin.NamedLimit {
	row := admin.NamedLimit{
		LimitJSON: notation.NewLimitJSON(&l.Spec), WordsJSON: notation.NewWordsJSON(&l.Spec),
		Put: p.node.IsPut(l.Name), Overrides: len(l.Overrides()),
		Candidate: admin.NewCandidateJSON(l, tried),
	}
	if row.Put {
		head := p.catalog.Head(l.Name)
		row.Version, row.By, row.AtMs = head.Version.String(), head.By, head.AtMs
		row.OverFile = p.node.Given(l.Name) != nil
	}
	return row
}

func (p *limitPages) change(r *http.Request, version string) admin.Change {
	return admin.NewChange(r.Context(), p.catalog, p.node, recorderOf(p.audit, r), version)
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
func (p *limitPages) doneBy(out catalog.Outcome, err error) (any, error) {
	return limitDone{
		p.node.ID(), out.Replaced, out.Version.String(), out.Reached, out.Missing,
	}, err
}

// put is PUT /v1/limits?version=: the body is the limit, in the words of the limits' files.
func (p *limitPages) put(rw http.ResponseWriter, r *http.Request) (any, error) {
	q, err := readQuery(r, "version")
	if err != nil {
		return nil, err
	}
	l, err := limitIn(rw, r)
	if err != nil {
		return nil, err
	}
	return p.doneBy(p.change(r, q["version"]).Put(l))
}

// limitIn is the limit of a body.
func limitIn(rw http.ResponseWriter, r *http.Request) (*limiter.Limit, error) {
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

// changed is a page ?name=&version= that changes the limit of that name.
func (p *limitPages) changed(
	how func(c admin.Change, name string) (catalog.Outcome, error),
) http.HandlerFunc {
	return answered(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		q, err := namedQuery(r, "name", "version")
		if err != nil {
			return nil, err
		}
		return p.doneBy(how(p.change(r, q["version"]), q["name"]))
	})
}

// rollback is POST /v1/limits/rollback?name=&to=&version=.
func (p *limitPages) rollback(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := namedQuery(r, "to", "name", "version")
	if err != nil {
		return nil, err
	}
	return p.doneBy(p.change(r, q["version"]).Rollback(q["name"], q["to"]))
}

// namedQuery is readQuery for a query that names a limit.
func namedQuery(r *http.Request, names ...string) (q map[string]string, err error) {
	q, err = readQuery(r, names...)
	if err == nil && q["name"] == "" {
		err = queryFault("name", "is missing; name a limit")
	}
	return q, err
}

// history is GET /v1/limits/history?name=: the last changes of one limit, or of all.
func (p *limitPages) history(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := readQuery(r, "name")
	if err != nil {
		return nil, err
	}
	list := p.catalog.History(q["name"])
	if list == nil {
		list = []catalog.Entry{}
	}
	return limitHistory{p.node.ID(), list}, nil
}

// limitHistory is GET /v1/limits/history.
type limitHistory struct {
	Node    string          `json:"node"`
	Entries []catalog.Entry `json:"entries"`
}
