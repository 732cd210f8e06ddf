package rpc

import (
	"strings"
	"sync"

	"penstock/cluster"
	"penstock/limiter"
)

// inlineName is the name of an inline limit that has none.
const inlineName = "inline"

// inlineLimits turns the limits that clients send along into *limiter.Limit, the same one for the same Spec. Its zero
// value is ready to use.
type inlineLimits struct{ cache limitCache }

// get returns the limit of spec, whose name may be empty. An error is a *limiter.SpecError; see inlineError.
func (c *inlineLimits) get(spec limiter.Spec) (*limiter.Limit, error) {
	if spec.Name == "" {
		spec.Name, spec.Nameless = inlineName, true
	}
	return c.cache.get(spec)
}

// restarted reports whether a door says so. Limits without a name of their own share one and nothing else: none of them
// takes another's place.
func restarted(d *cluster.Decision) bool { return d.Restarted && d.Rule.Name != inlineName }

// limitCache keeps the limits that arrive by the wire, so that a limit is checked and worked out once and not once per
// message, and everybody who sends the same Spec counts with the same pointer. It is bounded, because whoever sends
// names can draw new ones for ever: when young is full it becomes old, and what is in neither is made again.
type limitCache struct {
	mu         sync.RWMutex // guards the maps
	young, old map[limiter.Spec]*limiter.Limit
}

// limitCacheSize bounds each half of a limitCache: at most some 5 MB in all.
const limitCacheSize = 4096

// get returns the limit of spec. Its texts may lie in borrowed memory: what is kept has a copy.
func (c *limitCache) get(spec limiter.Spec) (*limiter.Limit, error) {
	c.mu.RLock()
	l := c.young[spec]
	c.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	spec.Name, spec.TimeZone, spec.Override = strings.Clone(spec.Name), strings.Clone(spec.TimeZone), strings.Clone(spec.Override)
	c.mu.Lock()
	defer c.mu.Unlock()
	if l = c.young[spec]; l != nil {
		return l, nil
	}
	if l = c.old[spec]; l == nil {
		var err error
		if l, err = limiter.New(spec); err != nil {
			return nil, err
		}
	}
	if c.young == nil || len(c.young) >= limitCacheSize {
		c.young, c.old = make(map[limiter.Spec]*limiter.Limit), c.young
	}
	c.young[spec] = l
	return l, nil
}
