package history

import (
	"slices"

	"penstock/cluster"
	"penstock/limiter"
)

// answerRoom is how many answers a node remembers. At mostAnswers a second they are of the last 16
// seconds at least.
const answerRoom = 8192

// answer is what is remembered of an answer. The key itself is not kept.
type answer struct {
	at         int64 // nanoseconds since 1970
	hash       uint64
	limit      *limiter.Limit
	owner      string
	cost       int64
	remaining  int64
	resetAfter int64
	retryAfter int64
	op         cluster.Op
	source     cluster.Source
	allowed    bool
	beyond     bool
	degraded   bool
}

// answers are the latest ones of a node, oldest first once it is full. The caller keeps others
// away.
type answers struct {
	list []answer
	next int // the oldest, which is overwritten next
}

func (a *answers) add(x answer) {
	if len(a.list) < answerRoom {
		a.list = append(a.list, x)
		return
	}
	a.list[a.next] = x
	a.next = (a.next + 1) % answerRoom
}

// inOrder calls fn with the answers, oldest first.
func (a *answers) inOrder(fn func(x *answer)) {
	for i := range a.list {
		fn(&a.list[(a.next+i)%len(a.list)])
	}
}

// Answer is an answer as a page shows it.
type Answer struct {
	AtMs       int64  `json:"at_ms"`
	Door       string `json:"door"` // the node that was asked
	Op         string `json:"op"`
	Cost       int64  `json:"cost"`
	Allowed    bool   `json:"allowed"`
	Beyond     bool   `json:"beyond,omitzero"` // the limit
	Degraded   bool   `json:"degraded,omitzero"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"` // less than 0: never
	Owner      string `json:"owner"`
	Source     string `json:"source"`
}

var opNames = [...]string{
	cluster.OpTake: "check", cluster.OpPeek: "peek", cluster.OpReset: "reset",
	cluster.OpReserve: "reserve", cluster.OpSettle: "settle", cluster.OpExtend: "extend",
	cluster.OpLease: "lease",
}

// of are the latest answers about a key under a limit, latest first.
func (a *answers) of(door, limit string, hash uint64, count int) []Answer {
	out := []Answer{}
	a.inOrder(func(x *answer) {
		if x.hash != hash || x.limit.Name != limit {
			return
		}
		retry := x.retryAfter
		if retry > 0 {
			retry = (retry + 999_999) / 1_000_000
		}
		out = append(out, Answer{
			AtMs: x.at / 1_000_000, Door: door, Op: opNames[x.op], Cost: x.cost,
			Allowed: x.allowed, Beyond: x.beyond, Degraded: x.degraded, Remaining: x.remaining,
			RetryAfter: retry, Owner: x.owner, Source: x.source.String(),
		})
	})
	slices.Reverse(out)
	return out[:min(count, len(out))]
}
