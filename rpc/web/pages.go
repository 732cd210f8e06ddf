package web

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
	"penstock/rpc/admin"
	"penstock/rpc/audit"
	"penstock/rpc/door"
	"penstock/rpc/page"
)

// nodePages show one node to people and their scripts, and are told to drain it or to recover.
type nodePages struct {
	node     *cluster.Node
	roster   admin.Roster
	audit    *audit.Log
	version  string
	started  time.Time
	proxied  bool // some proxies are trusted
	draining func() bool
	drain    func(context.Context) error
}

// recorderOf is that of the client of r.
func recorderOf(log *audit.Log, r *http.Request) door.Recorder {
	return door.Recorder{Log: log, Who: access.Of(r.Context()), From: r.RemoteAddr}
}

func (p *nodePages) ready(rw http.ResponseWriter, _ *http.Request) {
	switch {
	case p.draining():
		page.WriteProblem(rw, &page.Problem{
			Status: http.StatusServiceUnavailable, Title: "Draining",
			Detail: "this node is leaving its cluster",
		})
	case !p.node.Ready():
		page.WriteProblem(rw, &page.Problem{
			Status: http.StatusServiceUnavailable, Title: "Not ready",
			Detail: "this node has not joined its cluster yet",
		})
	default:
		fmt.Fprintln(rw, "ready")
		if lost := p.node.Membership().LostText(); lost != "" {
			fmt.Fprintln(rw, "on_partition decides:", lost)
		}
	}
}

// healthcheck is what envoyproxy/ratelimit has for its health: OK with 200, and 500 when it cannot
// answer.
func (p *nodePages) healthcheck(rw http.ResponseWriter, _ *http.Request) {
	if !p.node.Ready() || p.draining() {
		rw.WriteHeader(http.StatusInternalServerError)
		return
	}
	io.WriteString(rw, "OK")
}

func (p *nodePages) members(_ http.ResponseWriter, _ *http.Request) (any, error) {
	v := p.node.View()
	if v == nil {
		return nil, cluster.ErrNoView
	}
	out := struct {
		Members     []admin.MemberJSON `json:"members"`
		Ring        string             `json:"ring"`
		Disagreeing []string           `json:"limits_disagreeing"`
	}{Ring: admin.RingName(v), Disagreeing: admin.Disagreeing(p.node)}
	for _, k := range admin.KnownMembers(p.node, v, p.roster) {
		out.Members = append(out.Members, k.JSON())
	}
	return out, nil
}

func (p *nodePages) ring(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := readQuery(r, "key")
	key := q["key"]
	if err == nil && (len(key) < cluster.MinKey || len(key) > cluster.MaxKey) {
		err = queryFault("key", "has %d bytes; %d to %d are accepted", len(key), cluster.MinKey,
			cluster.MaxKey)
	}
	if err != nil {
		return nil, err
	}
	v := p.node.View()
	if v == nil {
		return nil, cluster.ErrNoView
	}
	at := admin.Locate(v, key)
	return struct {
		Key       string `json:"key"`
		Partition int    `json:"partition"`
		Owner     string `json:"owner"`
		Heir      string `json:"heir"`
		Ring      string `json:"ring"`
	}{key, at.Partition, at.Owner, at.Heir, admin.RingName(v)}, nil
}

// status is for people and their scripts: everything that a node says of itself, without keys.
func (p *nodePages) status(_ http.ResponseWriter, _ *http.Request) (any, error) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	counters := make(map[string]uint64)
	for _, c := range door.NodeCounters(p.node.Stats()) {
		counters[c.Name] = c.Value
	}
	counters["degraded"] = p.node.Stats().Degraded.Load()
	build := ""
	if b, ok := debug.ReadBuildInfo(); ok {
		build = b.GoVersion
	}
	members, active, hash := 0, 0, ""
	if v := p.node.View(); v != nil {
		members, active, hash = len(v.Members), v.Active(), admin.RingName(v)
	}
	unreachable := listed(p.node.Unreachable())
	return map[string]any{
		"name":               p.node.ID(),
		"boot":               fmt.Sprintf("%016x", p.node.Boot()),
		"version":            p.version,
		"go":                 build,
		"uptime_ms":          time.Since(p.started).Milliseconds(),
		"ready":              p.node.Ready() && !p.draining(),
		"members":            members,
		"active":             active,
		"ring":               hash,
		"unreachable":        unreachable,
		"epoch":              admin.EpochOf(p.node),
		"voters":             listed(p.node.Membership().Voters()),
		"lost_voters":        listed(p.node.Membership().Lost()),
		"lost_majority":      p.node.Membership().LostText(),
		"copies":             copiesStatus(p.node),
		"limits":             len(p.node.Limits()),
		"limits_hash":        fmt.Sprintf("%016x", p.node.LimitsHash()),
		"limits_disagreeing": admin.Disagreeing(p.node),
		"items":              counters,
		"table":              door.TableStatus(p.node),
		"heap_bytes":         memory.HeapAlloc,
		"goroutines":         runtime.NumGoroutine(),
		"trusted_proxy":      p.proxied,
	}, nil
}

// copiesStatus is how well other nodes know what this one holds.
func copiesStatus(n *cluster.Node) map[string]any {
	c := n.Copies()
	return map[string]any{
		"heirs": c.Heirs, "held": c.Held, "giving": c.Giving, "kept": c.Kept,
		"unreplicated": c.Unreplicated, "underreplicated": c.Short, "lag_ms": c.Lag.Milliseconds(),
	}
}

// listed is a list that JSON writes as [] when it is empty.
func listed(ids []string) []string {
	if ids == nil {
		return []string{}
	}
	return ids
}

// top is GET /v1/top?count=&limit=: the keys of this node that have used most.
func (p *nodePages) top(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, n, err := countedQuery(r, admin.TopDefault, "count", "limit")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout/2)
	defer cancel()
	return admin.Top(ctx, p.node, n, q["limit"]), nil
}

// holds is GET /v1/holds?limit=&key=&holder=&count=: what is set aside on keys of this node.
func (p *nodePages) holds(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, count, err := countedQuery(r, admin.HoldsDefault, "limit", "key", "holder", "count")
	if err != nil {
		return nil, err
	}
	return admin.ListHolds(p.node,
		limiter.HoldFilter{Limit: q["limit"], Key: q["key"], Holder: q["holder"]}, count)
}

// adminDone says that something has been done at one node.
type adminDone struct {
	Node string `json:"node"`
}

// recovers is POST /v1/recover.
func (p *nodePages) recovers(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := admin.RecoverNode(recorderOf(p.audit, r), p.node); err != nil {
		return nil, err
	}
	return adminDone{Node: p.node.ID()}, nil
}

// drains is POST /v1/drain.
func (p *nodePages) drains(_ http.ResponseWriter, r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout-time.Second)
	defer cancel()
	if err := admin.DrainNode(ctx, recorderOf(p.audit, r), p.node, p.drain); err != nil {
		return nil, err
	}
	return adminDone{Node: p.node.ID()}, nil
}

// auditJSON is GET /v1/audit.
type auditJSON struct {
	Node    string        `json:"node"`
	Entries []audit.Entry `json:"entries"`
}

// auditDefault is the number of entries that /v1/audit shows unless it is told otherwise.
const auditDefault = 100

// changes is GET /v1/audit?count=: the last changes at this node, the latest first.
func (p *nodePages) changes(_ http.ResponseWriter, r *http.Request) (any, error) {
	_, n, err := countedQuery(r, auditDefault, "count")
	if err != nil {
		return nil, err
	}
	return auditJSON{p.node.ID(), p.audit.Last(n)}, nil
}
