package web

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"penstock/cluster"
	"penstock/rpc/admin"
	"penstock/rpc/door"
	"penstock/rpc/page"
)

func (w *web) ready(rw http.ResponseWriter, _ *http.Request) {
	switch {
	case w.Draining != nil && w.Draining():
		page.WriteProblem(rw, &page.Problem{
			Status: http.StatusServiceUnavailable, Title: "Draining",
			Detail: "this node is leaving its cluster",
		})
	case !w.Node.Ready():
		page.WriteProblem(rw, &page.Problem{
			Status: http.StatusServiceUnavailable, Title: "Not ready",
			Detail: "this node has not joined its cluster yet",
		})
	default:
		fmt.Fprintln(rw, "ready")
		if lost := w.Node.Membership().LostText(); lost != "" {
			fmt.Fprintln(rw, "on_partition decides:", lost)
		}
	}
}

// healthcheck is what envoyproxy/ratelimit has for its health: OK with 200, and 500 when it cannot
// answer.
func (w *web) healthcheck(rw http.ResponseWriter, _ *http.Request) {
	if !w.Node.Ready() || w.Draining != nil && w.Draining() {
		rw.WriteHeader(http.StatusInternalServerError)
		return
	}
	io.WriteString(rw, "OK")
}

func (w *web) members(_ http.ResponseWriter, _ *http.Request) (any, error) {
	v := w.Node.View()
	if v == nil {
		return nil, cluster.ErrNoView
	}
	out := struct {
		Members     []admin.MemberJSON `json:"members"`
		Ring        string             `json:"ring"`
		Disagreeing []string           `json:"limits_disagreeing"`
	}{Ring: admin.RingName(v), Disagreeing: admin.Disagreeing(w.Node)}
	for _, k := range admin.KnownMembers(w.Node, v, w.Roster) {
		out.Members = append(out.Members, k.JSON())
	}
	return out, nil
}

func (w *web) ring(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := readQuery(r, "key")
	key := q["key"]
	if err == nil && (len(key) < cluster.MinKey || len(key) > cluster.MaxKey) {
		err = queryFault("key", "has %d bytes; %d to %d are accepted", len(key), cluster.MinKey,
			cluster.MaxKey)
	}
	if err != nil {
		return nil, err
	}
	v := w.Node.View()
	if v == nil {
		return nil, cluster.ErrNoView
	}
	p := admin.Locate(v, key)
	return struct {
		Key       string `json:"key"`
		Partition int    `json:"partition"`
		Owner     string `json:"owner"`
		Heir      string `json:"heir"`
		Ring      string `json:"ring"`
	}{key, p.Partition, p.Owner, p.Heir, admin.RingName(v)}, nil
}

// status is for people and their scripts: everything that a node says of itself, without keys.
func (w *web) status(_ http.ResponseWriter, _ *http.Request) (any, error) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	counters := make(map[string]uint64)
	for _, c := range door.NodeCounters(w.Node.Stats()) {
		counters[c.Name] = c.Value
	}
	counters["degraded"] = w.Node.Stats().Degraded.Load()
	build := ""
	if b, ok := debug.ReadBuildInfo(); ok {
		build = b.GoVersion
	}
	members, active, hash := 0, 0, ""
	if v := w.Node.View(); v != nil {
		members, active, hash = len(v.Members), v.Active(), admin.RingName(v)
	}
	unreachable := listed(w.Node.Unreachable())
	return map[string]any{
		"name":               w.Node.ID(),
		"boot":               fmt.Sprintf("%016x", w.Node.Boot()),
		"version":            w.Version,
		"go":                 build,
		"uptime_ms":          time.Since(w.Started).Milliseconds(),
		"ready":              w.Node.Ready() && (w.Draining == nil || !w.Draining()),
		"members":            members,
		"active":             active,
		"ring":               hash,
		"unreachable":        unreachable,
		"epoch":              admin.EpochOf(w.Node),
		"voters":             listed(w.Node.Membership().Voters()),
		"lost_voters":        listed(w.Node.Membership().Lost()),
		"copies":             copiesStatus(w.Node),
		"limits":             len(w.Node.Limits()),
		"limits_hash":        fmt.Sprintf("%016x", w.Node.LimitsHash()),
		"limits_disagreeing": admin.Disagreeing(w.Node),
		"items":              counters,
		"table":              door.TableStatus(w.Node),
		"heap_bytes":         memory.HeapAlloc,
		"goroutines":         runtime.NumGoroutine(),
		"trusted_proxy":      len(w.TrustedProxies) > 0,
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
