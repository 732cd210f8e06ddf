package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	l, which := newLookout(v.remote), v.whichHolds(max(v.Count, topListed))
	return watch(l, sh, &holdsScreen{limit: v.Limit},
		func(ctx context.Context) (*holdsLook, time.Duration, error) {
			look := l.lookHolds(ctx, which)
			return look, look.slowest, look.err
		})
}

// lookHolds asks all members once.
func (l *lookout) lookHolds(ctx context.Context, in *penstockv1.HoldsRequest) *holdsLook {
	out := &holdsLook{}
	out.missing, out.slowest, out.err = l.each(ctx, holdersOf,
		func(ctx context.Context, c *client.Client, _ *penstockv1.Member) (func(), error) {
			answer, err := askHolds(ctx, c, in)
			return func() { out.list.add(answer); out.members++ }, err
		})
	out.list.sort(int(in.Count))
	out.at = time.Now()
	return out
}

// holdersOf are the members that may keep holds: agents do for nobody, and what a failed one has
// kept another one has taken over.
func holdersOf(members []*penstockv1.Member) []*penstockv1.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m *penstockv1.Member) bool {
		return m.Role == "agent" || m.State == "failed"
	})
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
