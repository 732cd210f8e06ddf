package door

import (
	"strings"
	"sync"
	"sync/atomic"

	"penstock/limiter"
)

// LimitCache keeps the limits that arrive by the wire, so that a limit is checked and worked out
// once and not once per message, and all that send the same Spec count with the same
// pointer. It is bounded, because clients can send new names for ever: when young is
// full it becomes old, and what is in neither is made again.
type LimitCache struct {
	mu         sync.RWMutex // guards the maps
	young, old map[limiter.Spec]*cachedLimit
}

// cachedLimit is a limit with what its door remembers of it.
type cachedLimit struct {
	limit   *limiter.Limit
	counted atomic.Int64 // until when it need not be shown to Inlines.uses, in ns since 1970
}

func (l *cachedLimit) OrNil() *limiter.Limit {
	if l == nil {
		return nil
	}
	return l.limit
}

// limitCacheSize bounds each half of a LimitCache: at most some 5 MB in all.
const limitCacheSize = 4096

// Get returns the limit of spec. Its texts may lie in borrowed memory: what is kept has a copy.
func (c *LimitCache) Get(spec limiter.Spec) (*limiter.Limit, error) {
	l, err := c.entry(spec)
	return l.OrNil(), err
}

func (c *LimitCache) entry(spec limiter.Spec) (*cachedLimit, error) {
	c.mu.RLock()
	l := c.young[spec]
	c.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	spec.Name, spec.TimeZone, spec.Override = strings.Clone(spec.Name),
		strings.Clone(spec.TimeZone), strings.Clone(spec.Override)
	c.mu.Lock()
	defer c.mu.Unlock()
	if l = c.young[spec]; l != nil {
		return l, nil
	}
	if l = c.old[spec]; l == nil {
		made, err := limiter.New(spec)
		if err != nil {
			return nil, err
		}
		l = &cachedLimit{limit: made}
	}
	if c.young == nil || len(c.young) >= limitCacheSize {
		c.young, c.old = make(map[limiter.Spec]*cachedLimit), c.young
	}
	l.counted.Store(0) // its client shows again that it uses it
	c.young[spec] = l
	return l, nil
}
