package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// changed is what a log says of its requests, beside what the replay decides: the answer to what
// would change.
type changed struct {
	Refused int64 `json:"refused_in_log"`
	Allowed int64 `json:"of_those_allowed"`
	Denied  int64 `json:"of_the_others_denied"`

	refused func(at time.Time, beside string, cost int64) (bool, error) // what the log says
}

// cellNumbers are what a replay needs of a CL.THROTTLE command, to decide as redis-cell did.
const cellNumbers = "{burst} {count} {period} {key}"

// changes says what of each line tells whether the request was refused, and what it then says.
func (v *policyReplayVerb) changes() (beside string, c *changed, err error) {
	refused := v.Refused
	switch {
	case v.Format == "redis-cell" && refused == "":
		return cellNumbers, &changed{refused: cellDecides(int64(v.Memory))}, nil
	case v.Format == "envoy" && refused == "":
		refused = "{status}=429"
	case refused == "":
		return "", nil, nil
	}
	end := strings.LastIndexByte(refused, '=')
	if end <= 0 || !strings.Contains(refused[:end], "{") { // without a field all lines are alike
		return "", nil, fmt.Errorf("--refused: %.40q must be a text with fields of the log in "+
			"braces, = and what it is of a refused request, as in {status}=429", refused)
	}
	beside, value := refused[:end], refused[end+1:]
	return beside, &changed{refused: func(_ time.Time, is string, _ int64) (bool, error) {
		return is == value, nil
	}}, nil
}

// cellDecides decides as redis-cell did: MONITOR shows what clients have asked, and no answer.
func cellDecides(memory int64) func(time.Time, string, int64) (bool, error) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: memory})
	limits := map[string]*limiter.Limit{}
	return func(at time.Time, beside string, cost int64) (bool, error) {
		words := strings.SplitN(beside, " ", 4)
		numbers, key := beside[:len(beside)-len(words[3])], words[3]
		l := limits[numbers]
		if l == nil {
			var n [3]int64
			for i := range n {
				n[i], _ = strconv.ParseInt(words[i], 10, 64) // they were read as numbers
			}
			var err error
			if l, err = limiter.New(limiter.Spec{
				Name: "cl.throttle", Algorithm: limiter.GCRA, Limit: n[1],
				Burst: n[0] + 1, Per: time.Duration(n[2]) * time.Second,
			}); err != nil {
				return false, fmt.Errorf("CL.THROTTLE of %.60q: %w", key, err)
			}
			limits[numbers] = l
		}
		now := limiter.Instant(at.UnixNano())
		return !table.Take(now, l, key, limiter.Hash(key), cost).Allowed, nil
	}
}

// count counts a request that the replay has decided on.
func (c *changed) count(at time.Time, beside string, cost int64, denied bool) error {
	if c == nil {
		return nil
	}
	refused, err := c.refused(at, beside, cost)
	switch {
	case refused:
		if c.Refused++; !denied {
			c.Allowed++
		}
	case denied:
		c.Denied++
	}
	return err
}

// deny reports whether a limit has refused the request that was decided on last.
func (m *loggedMatch) deny() bool {
	return slices.ContainsFunc(m.decisions, func(d cluster.Decision) bool { return !d.Allowed })
}

func (c *changed) write(w io.Writer) {
	if c != nil {
		fmt.Fprintln(w, c)
	}
}

func (c *changed) String() string {
	return fmt.Sprintf("what changes: of %s that the log has refused, %s would be allowed; of the "+
		"others, %s would be denied", thousands(c.Refused), thousands(c.Allowed),
		thousands(c.Denied))
}
