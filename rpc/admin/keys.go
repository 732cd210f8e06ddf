package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
	"penstock/rpc/history"
)

// Bounds of lists of keys.
const (
	MaxListed   = 1000
	TopDefault  = 20
	KeysDefault = 100
)

// KeyState is what a key has used of a limit.
type KeyState struct {
	Key          string `json:"key"` // bytes that are no UTF-8 are written as U+FFFD
	Limit        string `json:"name"`
	Most         int64  `json:"limit"`
	Used         int64  `json:"used"`
	ResetAfterMs int64  `json:"reset_after_ms"`
}

// NewKeyState is what d, a look at key, says of it.
func NewKeyState(l *limiter.Limit, key string, d *limiter.Decision) KeyState {
	return KeyState{
		Key: key, Limit: l.Name, Most: d.Limit, Used: d.Limit - d.Remaining,
		ResetAfterMs: door.Millis(d.ResetAfter),
	}
}

func (k *KeyState) message() *penstockv1.KeyState {
	return &penstockv1.KeyState{
		Key: []byte(k.Key), LimitName: k.Limit, Limit: k.Most, Used: k.Used,
		ResetAfterMs: k.ResetAfterMs,
	}
}

// FoundKeys are keys that a node has found in its table.
type FoundKeys struct {
	Keys []KeyState `json:"keys"`
	Seen int64      `json:"seen"` // that were looked at
	// there may be more, or the caller would not wait until all keys had been looked at
	Partial bool `json:"partial"`
}

// TopKeys are the keys that have used most.
type TopKeys struct {
	Node string `json:"node"`
	FoundKeys
}

// ByUse puts the key first that has used most.
func ByUse(a, b KeyState) int {
	if a.Used != b.Used {
		return cmp.Compare(b.Used, a.Used)
	}
	return cmp.Or(strings.Compare(a.Limit, b.Limit), strings.Compare(a.Key, b.Key))
}

// Top looks at all keys that node decides for, and returns those that have used most. It keeps
// twice as many as it returns, so it needs no memory for the others; and it leaves out at once what
// comes after the last that is to be returned, so it sorts seldom.
func Top(ctx context.Context, node *cluster.Node, count int, limit string) TopKeys {
	out := TopKeys{node.ID(), FoundKeys{Keys: []KeyState{}}}
	var last KeyState
	full := false // last is set
	most := func() {
		slices.SortFunc(out.Keys, ByUse)
		out.Keys = out.Keys[:min(count, len(out.Keys))]
		if full = len(out.Keys) == count; full {
			last = out.Keys[count-1]
		}
	}
	for from, more := (limiter.Cursor{}), true; more; {
		if out.Partial = ctx.Err() != nil; out.Partial {
			break
		}
		from, more = EachKey(ctx, node, "", from, MaxListed,
			func(l *limiter.Limit, key string, d limiter.Decision) {
				if out.Seen++; limit != "" && l.Name != limit {
					return
				}
				k := NewKeyState(l, key, &d)
				if full && ByUse(k, last) > 0 {
					return
				}
				if out.Keys = append(out.Keys, k); len(out.Keys) >= 2*count {
					most()
				}
			})
	}
	most()
	return out
}

// looking is of the one goroutine that looks through keys: a table has millions, and many that do
// so at once would take all processors of the process, and as much memory each.
var looking = make(chan struct{}, 1)

// EachKey is node.Keys when its turn has come. When ctx ends before, it has seen nothing.
func EachKey(
	ctx context.Context, node *cluster.Node, prefix string, from limiter.Cursor, most int,
	fn func(l *limiter.Limit, key string, d limiter.Decision),
) (next limiter.Cursor, more bool) {
	select {
	case looking <- struct{}{}:
	case <-ctx.Done():
		return from, true
	}
	defer func() { <-looking }()
	return node.Keys(prefix, from, most, fn)
}

// readCount checks how many keys are asked for; 0 means usual.
func readCount(n int64, usual int) (int, error) {
	if n == 0 {
		return usual, nil
	}
	if n < 1 || n > MaxListed {
		return 0, door.Wrong("count", "is %d; 1 to %d are accepted", n, MaxListed)
	}
	return int(n), nil
}

// Top lists the keys that have used most, and those that were asked for most.
func (a *Service) Top(ctx context.Context,
	in *penstockv1.TopRequest,
) (*penstockv1.TopResponse, error) {
	count, err := readCount(int64(in.Count), TopDefault)
	if err == nil && (in.Asked < 0 || in.Asked > MaxListed) {
		err = door.Wrong("asked", "is %d; 0 to %d are accepted", in.Asked, MaxListed)
	}
	if err != nil {
		return nil, door.StatusError(err)
	}
	ctx, cancel := leaveTime(ctx, time.Now())
	defer cancel()
	t, s := Top(ctx, a.Node, count, in.Limit), a.Node.Stats()
	out := &penstockv1.TopResponse{
		Node: t.Node, Seen: t.Seen, Partial: t.Partial, Boot: a.Node.Boot(),
		Allowed: s.Allowed(), Denied: s.Denied(), Degraded: s.Degraded.Load(),
	}
	if in.Asked > 0 && a.Recorder != nil {
		out.Asked = askedKeys(a.Recorder.Heavy().Of(in.Limit, int(in.Asked)))
	}
	for i := range t.Keys {
		out.Keys = append(out.Keys, t.Keys[i].message())
	}
	return out, nil
}

// leaveTime is ctx with a quarter less of the time that there is until its deadline: an answer that
// is sent at the deadline comes too late.
func leaveTime(ctx context.Context, now time.Time) (context.Context, context.CancelFunc) {
	deadline, limited := ctx.Deadline()
	if !limited {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, now.Add(deadline.Sub(now)*3/4))
}

func askedKeys(l history.HeavyList) *penstockv1.AskedKeys {
	out := &penstockv1.AskedKeys{
		Total: l.Total, Unseen: l.Unseen, Sampled: l.Sampled,
		WindowMs: int64(l.Seconds * 1000),
	}
	for _, k := range l.Keys {
		out.Keys = append(out.Keys, &penstockv1.AskedKey{
			Key: []byte(k.Key), LimitName: k.Limit, Checks: k.Checks, Over: k.Over,
			Denied: k.Denied,
		})
	}
	return out
}

// Keys lists a page of keys.
func (a *Service) Keys(ctx context.Context,
	in *penstockv1.KeysRequest,
) (*penstockv1.KeysResponse, error) {
	count, err := readCount(int64(in.Count), KeysDefault)
	var from limiter.Cursor
	switch {
	case err != nil:
	case len(in.Prefix) > cluster.MaxKey:
		err = door.Wrong("prefix", "has %d bytes; at most %d are accepted", len(in.Prefix),
			cluster.MaxKey)
	case in.Cursor != "":
		from, err = readCursor(in.Cursor)
	}
	if err != nil {
		return nil, door.StatusError(err)
	}
	out := &penstockv1.KeysResponse{Node: a.Node.ID()}
	more := true
	for more && len(out.Keys) < count && ctx.Err() == nil {
		from, more = EachKey(ctx, a.Node, string(in.Prefix), from, count-len(out.Keys),
			func(l *limiter.Limit, key string, d limiter.Decision) {
				k := NewKeyState(l, key, &d)
				out.Keys = append(out.Keys, k.message())
			})
	}
	if more {
		out.Next = fmt.Sprintf("%x.%x", from.Part, from.Mix)
	}
	return out, nil
}

func readCursor(text string) (c limiter.Cursor, err error) {
	if _, err := fmt.Sscanf(text, "%x.%x", &c.Part, &c.Mix); err != nil ||
		fmt.Sprintf("%x.%x", c.Part, c.Mix) != text {
		return c, door.Wrong("cursor", "%.40q was not given by this node; begin without a cursor",
			text)
	}
	return c, nil
}
