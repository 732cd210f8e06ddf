package overview

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/admin"
	"penstock/rpc/history"
)

// Question is what the page of one node asks another node, as JSON. No part that is nil is asked.
type Question struct {
	Pulse   *pulseQuestion  `json:"pulse,omitempty"`
	Limits  *LimitsQuestion `json:"limits,omitempty"`
	Heavy   *KeysQuestion   `json:"heavy,omitempty"`
	Tried   *KeysQuestion   `json:"tried,omitempty"` // keys that candidates refuse
	Top     *KeysQuestion   `json:"top,omitempty"`
	Keys    *KeysQuestion   `json:"keys,omitempty"`
	Holds   *KeysQuestion   `json:"holds,omitempty"`
	Answers *KeysQuestion   `json:"answers,omitempty"`
}

// pulseQuestion asks for counts and events after those that are known already.
type pulseQuestion struct {
	Boot   uint64 `json:"boot,string"` // of which they are known; of another one all is asked for
	Fine   int64  `json:"fine"`        // seconds since 1970
	Rough  int64  `json:"rough"`       // likewise
	Change uint64 `json:"change"`
}

// LimitsQuestion asks for the tallies of some limits: those named, or those used most.
type LimitsQuestion struct {
	Names  []string `json:"names,omitempty"`
	Search string   `json:"search,omitempty"`
	By     string   `json:"by,omitempty"`
	Count  int      `json:"count,omitempty"`
}

// KeysQuestion asks about keys. A field that is empty excludes none.
type KeysQuestion struct {
	Limit  string `json:"limit,omitempty"`
	Key    string `json:"key,omitempty"` // of Keys: its beginning
	Count  int    `json:"count"`
	Holder string `json:"holder,omitempty"`
}

// Reply is the answer to a question.
type Reply struct {
	Node    string             `json:"node"`
	Boot    uint64             `json:"boot,string"`
	NowMs   int64              `json:"now_ms"`
	Pulse   *pulse             `json:"pulse,omitempty"`
	Limits  map[string]Tally   `json:"limits,omitempty"`
	Heavy   *history.HeavyList `json:"heavy,omitempty"`
	Tried   *history.HeavyList `json:"tried,omitempty"`
	Top     *admin.TopKeys     `json:"top,omitempty"`
	Keys    *admin.FoundKeys   `json:"keys,omitempty"`
	Holds   *admin.OpenHolds   `json:"holds,omitempty"`
	Answers *rememberedAnswers `json:"answers,omitempty"`
	Refused string             `json:"refused,omitempty"` // why something is missing
}

// pulse is how a node is.
type pulse struct {
	Fine   history.Rows    `json:"fine,omitzero"`
	Rough  history.Rows    `json:"rough,omitzero"`
	Events []history.Event `json:"events,omitempty"`

	Allowed      uint64 `json:"allowed"` // since its start
	Denied       uint64 `json:"denied"`
	Degraded     uint64 `json:"degraded"`
	Held         int    `json:"held"` // partitions
	Giving       int    `json:"giving"`
	Kept         int    `json:"kept"`
	Unreplicated int    `json:"unreplicated"`
	LagMs        int64  `json:"lag_ms"`
	TableBytes   int64  `json:"table_bytes"`
	UptimeMs     int64  `json:"uptime_ms"`
	Ready        bool   `json:"ready"`
}

// Tally is what the checks under a limit were told at a node's doors.
type Tally struct {
	Allowed      uint64 `json:"allowed"`
	Denied       uint64 `json:"denied"`
	Beyond       uint64 `json:"beyond"`
	Degraded     uint64 `json:"degraded"`
	NewlyDenied  uint64 `json:"newly_denied"` // by its candidate
	NewlyAllowed uint64 `json:"newly_allowed"`
}

// Add adds o to t.
func (t *Tally) Add(o Tally) {
	t.Allowed += o.Allowed
	t.Denied += o.Denied
	t.Beyond += o.Beyond
	t.Degraded += o.Degraded
	t.NewlyDenied += o.NewlyDenied
	t.NewlyAllowed += o.NewlyAllowed
}

// rememberedAnswers are the latest answers about a key.
type rememberedAnswers struct {
	Answers []history.Answer `json:"answers"`
	Share   int64            `json:"share"` // 1 in how many keys is remembered
}

// errAgentKeys tells an agent that it does not hear of keys. Its clients may have fewer rights than
// those of a member.
const errAgentKeys = "an agent is told counts and events, and no keys; open the page of a member"

// Answer answers a question of another node (peer.Inquiries).
func (o *Overview) Answer(ctx context.Context, text []byte, agent bool) ([]byte, error) {
	var q Question
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, fmt.Errorf("a question of a page: %w", err)
	}
	refused := ""
	if agent {
		if q.Heavy != nil || q.Tried != nil || q.Top != nil || q.Keys != nil || q.Holds != nil ||
			q.Answers != nil {
			refused = errAgentKeys
		}
		q.Heavy, q.Tried, q.Top, q.Keys, q.Holds, q.Answers = nil, nil, nil, nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	a := o.answer(ctx, &q)
	a.Refused = refused
	return json.Marshal(a)
}

// answer is what this node says.
func (o *Overview) answer(ctx context.Context, q *Question) *Reply {
	n := o.Node
	a := &Reply{Node: n.ID(), Boot: n.Boot(), NowMs: o.Now().UnixMilli()}
	if q.Pulse != nil {
		a.Pulse = o.pulse(q.Pulse)
	}
	if q.Limits != nil {
		a.Limits = Tallies(n, q.Limits)
	}
	if q.Heavy != nil {
		list := o.Recorder.Heavy().Of(q.Heavy.Limit, countOf(q.Heavy))
		a.Heavy = &list
	}
	if q.Tried != nil {
		list := o.Recorder.NewlyDeniedKeys().Of(q.Tried.Limit, countOf(q.Tried))
		a.Tried = &list
	}
	if q.Top != nil {
		list := admin.Top(ctx, n, countOf(q.Top), q.Top.Limit)
		a.Top = &list
	}
	if q.Keys != nil {
		a.Keys = findKeys(ctx, n, q.Keys)
	}
	if q.Holds != nil {
		f := limiter.HoldFilter{Limit: q.Holds.Limit, Key: q.Holds.Key, Holder: q.Holds.Holder}
		if list, err := admin.ListHolds(n, f, countOf(q.Holds)); err == nil {
			a.Holds = &list
		}
	}
	if q.Answers != nil {
		o.Recorder.Watch(q.Answers.Key)
		list, share := o.Recorder.Answers(q.Answers.Limit, q.Answers.Key, countOf(q.Answers))
		a.Answers = &rememberedAnswers{list, share}
	}
	return a
}

func countOf(q *KeysQuestion) int { return min(max(1, q.Count), admin.MaxListed) }

func (o *Overview) pulse(q *pulseQuestion) *pulse {
	if q.Boot != o.Node.Boot() {
		*q = pulseQuestion{}
	}
	s, c := o.Node.Stats(), o.Node.Copies()
	return &pulse{
		Fine: o.Recorder.Series(q.Fine, false), Rough: o.Recorder.Series(q.Rough, true),
		Events:  o.Recorder.Events(q.Change),
		Allowed: s.Allowed(), Denied: s.Denied(), Degraded: s.Degraded.Load(),
		Held: c.Held, Giving: c.Giving, Kept: c.Kept, Unreplicated: c.Unreplicated,
		LagMs: c.Lag.Milliseconds(), TableBytes: int64(o.Node.Table().Stats().Bytes),
		UptimeMs: o.Now().Sub(o.Started).Milliseconds(), Ready: o.Node.Ready(),
	}
}

// Orders are the ways to sort limits.
var Orders = map[string]func(Tally) uint64{
	"name":     func(Tally) uint64 { return 0 },
	"checks":   func(t Tally) uint64 { return t.Allowed + t.Denied },
	"denied":   func(t Tally) uint64 { return t.Denied },
	"beyond":   func(t Tally) uint64 { return t.Beyond },
	"degraded": func(t Tally) uint64 { return t.Degraded },
}

// Tallies are those of the limits that are asked for.
func Tallies(n *cluster.Node, q *LimitsQuestion) map[string]Tally {
	all, tried := n.LimitTallies(), n.Stats().Candidates()
	out := map[string]Tally{}
	read := func(name string) Tally {
		var t Tally
		sum := all[name]
		var row admin.NamedLimit
		row.Count(sum)
		t.Allowed, t.Denied = row.Allowed+row.Delayed, row.Denied
		t.Beyond = row.Shadow + row.Tagged + row.Lower
		for _, times := range sum.Degraded {
			t.Degraded += times
		}
		t.NewlyDenied, t.NewlyAllowed = tried[name].NewlyDenied, tried[name].NewlyAllowed
		return t
	}
	if len(q.Names) > 0 {
		for _, name := range q.Names {
			out[name] = read(name)
		}
		return out
	}
	for _, name := range SortedLimits(n, q, read) {
		out[name] = read(name)
	}
	return out
}

// SortedLimits are the names of limits with a text in them, first those that an order puts first,
// and at most as many as are asked for.
func SortedLimits(n *cluster.Node, q *LimitsQuestion, read func(string) Tally) []string {
	word := strings.ToLower(q.Search)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(n.Limits())), func(name string) bool {
		return word != "" && !strings.Contains(strings.ToLower(name), word)
	})
	if value := Orders[q.By]; value != nil && q.By != "name" {
		values := make(map[string]uint64, len(names))
		for _, name := range names {
			values[name] = value(read(name))
		}
		slices.SortStableFunc(names, func(a, b string) int {
			switch {
			case values[a] > values[b]:
				return -1
			case values[a] < values[b]:
				return 1
			}
			return 0
		})
	}
	return names[:min(len(names), max(0, q.Count))]
}

// findKeys looks for keys with a beginning until it has enough of them, or ctx ends.
func findKeys(ctx context.Context, n *cluster.Node, q *KeysQuestion) *admin.FoundKeys {
	out := &admin.FoundKeys{Keys: []admin.KeyState{}}
	want := countOf(q)
	from, more := limiter.Cursor{}, true
	for more && len(out.Keys) < want && ctx.Err() == nil {
		from, more = admin.EachKey(ctx, n, q.Key, from, admin.MaxListed,
			func(l *limiter.Limit, key string, d limiter.Decision) {
				out.Seen++
				if q.Limit == "" || l.Name == q.Limit {
					out.Keys = append(out.Keys, admin.NewKeyState(l, key, &d))
				}
			})
	}
	out.Partial = more || len(out.Keys) > want
	out.Keys = out.Keys[:min(want, len(out.Keys))]
	return out
}
