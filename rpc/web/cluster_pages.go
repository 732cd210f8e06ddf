package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"penstock/cluster"
	"penstock/ring"
	"penstock/rpc/admin"
	"penstock/rpc/history"
	"penstock/rpc/overview"
)

// clusterPages are the pages about the whole cluster. Each of them asks all nodes.
type clusterPages struct {
	node     *cluster.Node
	overview *overview.Overview // nil: there are no such pages
	limits   *limitPages
	proxies  proxies
	draining func() bool
	version  string
	streams  streams
}

// addTo adds the pages to m.
func (p *clusterPages) addTo(m *mux, lists *operating) {
	if p.overview == nil {
		return
	}
	m.handle("GET /v1/cluster/watch", p.watch)
	for page, h := range map[string]func(http.ResponseWriter, *http.Request) (any, error){
		"limits": p.limitPage, "rules": p.rules, "ring": p.ring, "heavy": p.heavy, "top": p.top,
		"keys": p.keys, "holds": p.holds, "key": p.key,
	} {
		m.handle("GET /v1/cluster/"+page, lists.answered(h))
	}
}

// clusterLimit is a limit with what all nodes have counted.
type clusterLimit struct {
	admin.NamedLimit
	Beyond   uint64          `json:"beyond"` // let through although the limit refuses
	Degraded uint64          `json:"degraded"`
	Heavy    []history.Heavy `json:"heavy"` // the keys that were asked for most lately
	// Tried are the keys that the candidate refuses most often, and the limit admits.
	Tried []history.Heavy `json:"newly_denied_keys"`
}

// limitPage is GET /v1/cluster/limits?search=&by=&count=: limits that are in force at this
// node, with the counts of all nodes.
func (p *clusterPages) limitPage(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, n, err := countedQuery(r, admin.KeysDefault, "search", "by", "count")
	by := cmp.Or(q["by"], "name")
	if err == nil && overview.Orders[by] == nil {
		err = queryFault("by", "%.40q is none of name, checks, denied, beyond, degraded", by)
	}
	if err != nil {
		return nil, err
	}
	asked := &overview.LimitsQuestion{Search: q["search"], By: by, Count: n}
	sums := map[string]overview.Tally{}
	if by == "name" { // this node knows which ones
		for name := range overview.Tallies(p.node, asked) {
			asked.Names = append(asked.Names, name)
		}
	} else {
		p.overview.AskAll(r.Context(), overview.Everyone(&overview.Question{Limits: asked}),
			func(a *overview.Reply, _ timeSkew) {
				for name := range a.Limits {
					asked.Names = append(asked.Names, name)
				}
			})
		slices.Sort(asked.Names)
		asked.Names = slices.Compact(asked.Names)
	}
	var heavy, tried []history.HeavyList
	missing := []string{}
	if len(asked.Names) > 0 {
		keys := &overview.KeysQuestion{Count: admin.MaxListed}
		missing = p.overview.AskAll(r.Context(),
			overview.Everyone(&overview.Question{Limits: asked, Heavy: keys, Tried: keys}),
			func(a *overview.Reply, _ timeSkew) {
				for name, t := range a.Limits {
					sum := sums[name]
					sum.Add(t)
					sums[name] = sum
				}
				if a.Heavy != nil {
					heavy = append(heavy, *a.Heavy)
				}
				if a.Tried != nil {
					tried = append(tried, *a.Tried)
				}
			})
	}
	rows := p.limitRows(sums, history.Sum(heavy...), history.Sum(tried...))
	sortRows(rows, by)
	shown := rows[:min(n, len(rows))]
	all := len(p.node.Limits())
	return map[string]any{
		"limits": shown, "found": countLimits(p.node, q["search"]), "all": all, "missing": missing,
	}, nil
}

func countLimits(n *cluster.Node, search string) int {
	q := &overview.LimitsQuestion{Search: search, Count: len(n.Limits())}
	return len(overview.SortedLimits(n, q, nil))
}

// limitRows are the limits of this node that are counted in sums.
func (p *clusterPages) limitRows(
	sums map[string]overview.Tally, heavy, tried history.HeavyList,
) []clusterLimit {
	limits, candidates := p.node.Limits(), p.node.Stats().Candidates()
	rows := []clusterLimit{}
	for name, sum := range sums {
		l := limits[name]
		if l == nil {
			continue // another node has other limits; the page says so
		}
		row := clusterLimit{
			NamedLimit: p.limits.row(l, candidates[name]),
			Beyond:     sum.Beyond, Degraded: sum.Degraded,
		}
		row.Allowed, row.Denied = sum.Allowed, sum.Denied
		if row.Candidate != nil {
			row.Candidate.NewlyDenied = sum.NewlyDenied
			row.Candidate.NewlyAllowed = sum.NewlyAllowed
		}
		row.Heavy = heavy.Of(name, heavyOfLimit).Keys
		row.Tried = tried.Of(name, heavyOfLimit).Keys
		rows = append(rows, row)
	}
	return rows
}

// heavyOfLimit is how many keys are shown beside a limit.
const heavyOfLimit = 3

func sortRows(rows []clusterLimit, by string) {
	value := func(r *clusterLimit) uint64 {
		return overview.Orders[by](overview.Tally{
			Allowed: r.Allowed, Denied: r.Denied, Beyond: r.Beyond, Degraded: r.Degraded,
		})
	}
	slices.SortFunc(rows, func(a, b clusterLimit) int {
		return cmp.Or(cmp.Compare(value(&b), value(&a)), cmp.Compare(a.Name, b.Name))
	})
}

// ruleJSON is a rule as the page shows it.
type ruleJSON struct {
	Name      string              `json:"name,omitempty"`
	Match     map[string][]string `json:"match"`
	Apply     []applyJSON         `json:"apply"`
	Unlimited bool                `json:"unlimited,omitzero"`
}

type applyJSON struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
}

// rules is GET /v1/cluster/rules?search=&count=: rules that are in force at this node.
func (p *clusterPages) rules(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, n, err := countedQuery(r, admin.KeysDefault, "search", "count")
	if err != nil {
		return nil, err
	}
	word, found, list := strings.ToLower(q["search"]), 0, []ruleJSON{}
	all := 0
	if set := p.node.Rules(); set != nil {
		all = len(set.Rules())
		for _, rule := range set.Rules() {
			out := ruleJSON{Name: rule.Name, Match: rule.Match, Unlimited: rule.Unlimited}
			text := strings.ToLower(fmt.Sprint(rule.Name, rule.Match, rule.Apply))
			if word != "" && !strings.Contains(text, word) {
				continue
			}
			if found++; len(list) == n {
				continue
			}
			for _, a := range rule.Apply {
				out.Apply = append(out.Apply, applyJSON{a.Limit, a.Key})
			}
			list = append(list, out)
		}
	}
	return map[string]any{"rules": list, "found": found, "all": all}, nil
}

// ring is GET /v1/cluster/ring: the owner and the heir of each partition, as indices of
// names; −1: there is none.
func (p *clusterPages) ring(_ http.ResponseWriter, r *http.Request) (any, error) {
	v := p.node.View()
	if v == nil {
		return nil, cluster.ErrNoView
	}
	owners, heirs := make([]int, ring.Partitions), make([]int, ring.Partitions)
	names := []string{}
	if v.Ring != nil {
		names = v.Ring.Members()
	}
	for i := range owners {
		owners[i], heirs[i] = -1, -1
		if v.Ring == nil {
			continue
		}
		owners[i] = int(v.Ring.Owner(i))
		if heir, ok := v.Ring.Heir(i); ok {
			heirs[i] = int(heir)
		}
	}
	return map[string]any{
		"ring": admin.RingName(v), "epoch": admin.EpochOf(p.node),
		"names": names, "owners": owners, "heirs": heirs,
	}, nil
}

// heavy is GET /v1/cluster/heavy?limit=&count=: the keys that were asked for most within the
// last minute.
func (p *clusterPages) heavy(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, n, err := countedQuery(r, admin.TopDefault, "limit", "count")
	if err != nil {
		return nil, err
	}
	var lists []history.HeavyList
	missing := p.overview.AskAll(r.Context(),
		overview.Everyone(&overview.Question{Heavy: &overview.KeysQuestion{
			Count: admin.MaxListed,
		}}),
		func(a *overview.Reply, _ timeSkew) {
			if a.Heavy != nil {
				lists = append(lists, *a.Heavy)
			}
		})
	out := struct {
		history.HeavyList
		Missing []string `json:"missing"`
	}{history.Sum(lists...).Of(q["limit"], n), missing}
	return out, nil
}

// top is GET /v1/cluster/top?limit=&count=: the keys that have used most.
func (p *clusterPages) top(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, n, err := countedQuery(r, admin.TopDefault, "limit", "count")
	if err != nil {
		return nil, err
	}
	out, seen := p.overview.OwnedKeys(r.Context(),
		&overview.Question{Top: &overview.KeysQuestion{Limit: q["limit"], Count: n}},
		func(a *overview.Reply) *admin.FoundKeys {
			if a.Top == nil {
				return nil
			}
			return &a.Top.FoundKeys
		})
	slices.SortFunc(out.Keys, func(a, b overview.OwnedKey) int {
		return admin.ByUse(a.KeyState, b.KeyState)
	})
	out.Keys = out.Keys[:min(n, len(out.Keys))]
	return struct {
		overview.OwnedKeys
		Seen int64 `json:"seen"` // keys that were looked at
	}{out, seen}, nil
}

// keys is GET /v1/cluster/keys?limit=&prefix=&count=: keys that begin so.
func (p *clusterPages) keys(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, n, err := countedQuery(r, admin.TopDefault, "limit", "prefix", "count")
	if long := len(q["prefix"]); err == nil && long > cluster.MaxKey {
		err = queryFault("prefix", "has %d bytes; at most %d are accepted", long, cluster.MaxKey)
	}
	if err != nil {
		return nil, err
	}
	out, _ := p.overview.OwnedKeys(r.Context(),
		&overview.Question{Keys: &overview.KeysQuestion{
			Limit: q["limit"], Key: q["prefix"], Count: n,
		}},
		func(a *overview.Reply) *admin.FoundKeys { return a.Keys })
	slices.SortFunc(out.Keys, func(a, b overview.OwnedKey) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Limit, b.Limit))
	})
	out.Partial = out.Partial || len(out.Keys) > n
	out.Keys = out.Keys[:min(n, len(out.Keys))]
	return out, nil
}

// nodeHold is a hold with the node that keeps it.
type nodeHold struct {
	admin.OpenHold
	Node string `json:"node"`
}

// holds is GET /v1/cluster/holds?limit=&holder=&count=: what is set aside, earliest deadline
// first.
func (p *clusterPages) holds(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, n, err := countedQuery(r, admin.TopDefault, "limit", "holder", "count")
	if err != nil {
		return nil, err
	}
	list, there := []nodeHold{}, 0
	missing := p.overview.AskAll(r.Context(), overview.Everyone(&overview.Question{
		Holds: &overview.KeysQuestion{Limit: q["limit"], Holder: q["holder"], Count: n},
	}), func(a *overview.Reply, _ timeSkew) {
		if a.Holds == nil {
			return
		}
		for _, h := range a.Holds.Holds {
			list = append(list, nodeHold{h, a.Node})
		}
		there += a.Holds.There
	})
	slices.SortFunc(list, func(a, b nodeHold) int {
		return cmp.Or(cmp.Compare(a.LeftMs, b.LeftMs), cmp.Compare(a.Key, b.Key))
	})
	return map[string]any{
		"holds": list[:min(n, len(list))], "there": there, "missing": missing,
	}, nil
}
