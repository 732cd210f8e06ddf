package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// holdsLook is what all members together have said of their open holds once.
type holdsLook struct {
	at      time.Time
	slowest time.Duration // answer of a node
	list    holdList
	members int      // that have answered
	missing []absent // that have not
	err     error    // no node answers; nothing above is filled in but at
}

// liveHolds redraws the screen of open holds until q or a signal.
func (v *topVerb) liveHolds(sh shell) error {
	l := &lookout{remote: v.remote, nodes: map[string]*client.Client{}}
	count := max(v.Count, topListed)
	first := l.lookHolds(context.Background(), v.whichHolds(count))
	if first.err != nil {
		l.close()
		return first.err // a wrong address or token: there is nothing to look at
	}
	s := &holdsScreen{limit: v.Limit}
	s.take(first)
	return l.watch(sh, func(ctx context.Context, t *terminal) {
		look := func(ctx context.Context) (*holdsLook, time.Duration) {
			look := l.lookHolds(ctx, v.whichHolds(count))
			return look, look.slowest
		}
		runScreen(ctx, s, t, look, coloured(sh.out))
	})
}

// lookHolds asks all members once. Agents hold nothing for others.
func (l *lookout) lookHolds(ctx context.Context, in *penstockv1.HoldsRequest) *holdsLook {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	members, err := l.members(ctx)
	if err != nil {
		return &holdsLook{at: time.Now(), err: err}
	}
	out := &holdsLook{}
	var each sync.WaitGroup
	var mu sync.Mutex // guards out
	for _, m := range members {
		if m.Role == "agent" || m.State == "failed" {
			continue
		}
		c, err := l.reach(m)
		each.Go(func() {
			began := time.Now()
			answer := &penstockv1.HoldsResponse{}
			if err == nil {
				answer, err = askHolds(ctx, c, in)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				why := client.Explain(err, []string{m.GrpcAddress}).Error()
				out.missing = append(out.missing, absent{m.Name, why})
				return
			}
			out.members++
			out.list.add(answer)
			out.slowest = max(out.slowest, time.Since(began))
		})
	}
	each.Wait()
	l.forget(members, out.missing)
	slices.SortFunc(out.missing, func(a, b absent) int { return strings.Compare(a.name, b.name) })
	out.list.sort(int(in.Count))
	out.at = time.Now()
	return out
}

// askHolds asks a member; of a key that another node decides on it has none.
func askHolds(
	ctx context.Context, c *client.Client, in *penstockv1.HoldsRequest,
) (*penstockv1.HoldsResponse, error) {
	out, err := adminOf(c).Holds(ctx, in)
	if errors.Is(err, client.ErrElsewhere) {
		return &penstockv1.HoldsResponse{}, nil
	}
	return out, err
}

// holdsScreen is a live screen of open holds. Its methods read no clock and write nothing.
type holdsScreen struct {
	limit string // the holds are under this limit alone; empty: under all

	look   *holdsLook // the last one that a node answered
	err    error      // no node answers, since the look after look
	lostAt time.Time
	scrolled
}

// take shows a new look.
func (s *holdsScreen) take(now *holdsLook) {
	if now.err != nil {
		if s.err == nil {
			s.lostAt = now.at
		}
		s.err = now.err
		return
	}
	s.look, s.err = now, nil
	s.scroll(0, len(now.list.Holds))
}

// press does what a key asks for. It reports whether that is to end.
func (s *holdsScreen) press(k key) (quit bool) {
	return s.scrolled.press(k, len(s.look.list.Holds))
}

// soonOver is how much time is left of a hold that is marked: its holder settles it soon, or has
// forgotten it.
const soonOver = 5 * time.Second

// lines are what a terminal of a size shows at a time.
func (s *holdsScreen) lines(now time.Time, width, height int, colours bool) []string {
	holds := s.look.list.Holds
	head := s.head(now)
	s.page = max(1, height-len(head)-2) // the names of columns, and of keys
	s.scroll(0, len(holds))
	from, to := s.seen(len(holds))
	var table strings.Builder
	_ = columns(&table, holdTable(holds[from:to])) // a text takes all that is written
	for i, line := range strings.Split(strings.TrimRight(table.String(), "\n"), "\n") {
		row := painted{line, bold}
		if i > 0 {
			row.colour = ""
			if holds[from+i-1].Left < soonOver.Milliseconds() {
				row.colour = yellow
			}
		}
		head = append(head, row)
	}
	foot := []painted{{fmt.Sprintf("holds %d to %d of %s   q quits  j k scroll",
		min(from+1, to), to, thousands(s.look.list.There)), bold}}
	return onScreen(head, foot, width, height, colours)
}

// head says how many holds there are, and which members are missing.
func (s *holdsScreen) head(now time.Time) (head []painted) {
	title := "penstock top --holds  " + s.look.at.Format(time.TimeOnly) + "  " +
		some(s.look.members, "member")
	if s.limit != "" {
		title += "  limit " + shown(s.limit)
	}
	head = []painted{{title + ", the earliest deadline first", bold}}
	for _, a := range s.look.missing {
		head = append(head, painted{"without " + a.name + ": " + a.why, red})
	}
	if s.err != nil {
		head = append(head, nobodyAnswers(s.err, s.lostAt, now))
	}
	return head
}
