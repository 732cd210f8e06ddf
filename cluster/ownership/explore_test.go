package ownership

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	states = flag.Int("ownership.states", 4000,
		"distinct states that the explorer visits in each setting")
	depth = flag.Int("ownership.depth", 40, "moves from the first state, at most")
)

// setting is where an exploration begins, and what may happen in it.
type setting struct {
	name    string
	begin   func(p *Params) *model
	kinds   kind
	faults  int
	skews   int
	epochs  uint64 // configurations after the first state's, at most
	without rule
}

// found is a tree of states: each knows its parent and the move that led from it.
type found struct {
	parent uint32
	depth  uint8
	m      move
}

// explorer goes through all states of a setting, breadth first. Of a state it keeps 64 bits of
// hash, its parent and its move. Models are made again by playing moves; the path to the state
// before is kept, so that mostly one move is enough.
type explorer struct {
	setting
	p      *Params
	seen   map[uint64]struct{}
	tree   []found
	path   []*model // to the state that is being looked at
	nodes  []uint32 // … as indices of tree
	first  uint64   // epoch number
	pruned int      // second foundings, and too many epochs
	moves  []move
	deep   uint8
}

func newExplorer(s setting) *explorer {
	e := &explorer{setting: s, p: tickParams(s.without), seen: map[uint64]struct{}{}}
	m := s.begin(e.p)
	m.faults, m.skews = s.faults, s.skews
	e.first = m.number()
	e.seen[m.hash()] = struct{}{}
	e.tree = []found{{}}
	e.path, e.nodes = []*model{m}, []uint32{0}
	return e
}

// number is the highest number of an epoch.
func (m *model) number() (n uint64) {
	for i := range m.nodes {
		if s := m.nodes[i].s; s.config != nil {
			n = max(n, s.config.Epoch.Number)
		}
	}
	return n
}

// run visits up to limit states, and returns the way to a violation, or nil.
func (e *explorer) run(limit int) (way []move, why string) {
	for next := uint32(0); int(next) < len(e.tree) && len(e.seen) < limit; next++ {
		at := e.tree[next]
		if int(at.depth) >= *depth {
			break
		}
		e.deep = at.depth
		m := e.reach(next)
		e.moves = m.moves(e.kinds, e.moves)
		for _, v := range e.moves {
			c := m.clone()
			c.do(v)
			if c.wrong != "" {
				return append(e.way(next), v), c.wrong
			}
			if c.second || c.number() > e.first+e.epochs {
				e.pruned++
				continue
			}
			h := c.hash()
			if _, old := e.seen[h]; old {
				continue
			}
			e.seen[h] = struct{}{}
			e.tree = append(e.tree, found{next, at.depth + 1, v})
		}
	}
	return nil, ""
}

// reach makes the model of a state again.
func (e *explorer) reach(i uint32) *model {
	var missing []uint32
	for j := i; ; j = e.tree[j].parent {
		d := int(e.tree[j].depth)
		if d < len(e.nodes) && e.nodes[d] == j {
			e.nodes, e.path = e.nodes[:d+1], e.path[:d+1]
			break
		}
		missing = append(missing, j)
	}
	for k := len(missing) - 1; k >= 0; k-- {
		m := e.path[len(e.path)-1].clone()
		m.do(e.tree[missing[k]].m)
		e.path, e.nodes = append(e.path, m), append(e.nodes, missing[k])
	}
	return e.path[len(e.path)-1]
}

// way is the row of moves to a state.
func (e *explorer) way(i uint32) []move {
	if i == 0 {
		return nil
	}
	return append(e.way(e.tree[i].parent), e.tree[i].m)
}

// trio is a, b and c in one configuration with these voters; a owns the partition and holds it.
func trio(members string, voters ...Boot) func(p *Params) *model {
	return func(p *Params) *model {
		m := &model{p: p, faults: 0}
		c := &Configuration{Epoch: Epoch{Founded(9), 1}, Voters: voters}
		for i, id := range names {
			me := Member{ID: id, Boot: Boot(i + 1)}
			m.nodes[i] = machine{s: keep(New(p, me, Of(names...), 0), 1), boots: 1, up: true}
			if strings.Contains(members, id) {
				c.Members = append(c.Members, me)
			}
		}
		for i := range m.nodes {
			if c.Has(Boot(i + 1)) {
				m.nodes[i].s.enters(0, c)
				for _, b := range c.Members {
					m.nodes[i].s.entry(b.Boot).renewed = 0
				}
			} else {
				m.nodes[i].up, m.nodes[i].boots = false, 1
			}
		}
		for range 4 {
			m.tick()
		}
		return m
	}
}

// unfounded are three boots that know nothing but each other's addresses.
func unfounded(p *Params) *model {
	m := &model{p: p}
	for i, id := range names {
		m.nodes[i] = machine{
			s:     keep(New(p, Member{ID: id, Boot: Boot(i + 1)}, Of(names...), 0), 1),
			boots: 1, up: true,
		}
	}
	return m
}

var settings = []setting{
	{name: "three voters", begin: trio("abc", 1, 2, 3), kinds: all, faults: 3, skews: 1, epochs: 3},
	{name: "one voter of three", begin: trio("abc", 1), kinds: all, faults: 3, skews: 1, epochs: 3},
	{
		name: "two voters of three", begin: trio("abc", 1, 2), kinds: all, faults: 3, skews: 1,
		epochs: 3,
	},
	{
		name: "pair and a newcomer", begin: trio("ab", 1, 2), kinds: all, faults: 3, skews: 1,
		epochs: 3,
	},
	{name: "founding", begin: unfounded, kinds: all, faults: 2, skews: 1, epochs: 4},
}

// TestExplore goes through the states of each setting, and finds no two that decide for one
// partition.
func TestExplore(t *testing.T) {
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			e := newExplorer(s)
			if way, why := e.run(*states); way != nil {
				t.Fatal(e.tell(way, why))
			}
			ends := 0
			for i := 0; i < len(e.tree); i += max(1, len(e.tree)/100) {
				if why := e.reach(uint32(i)).clone().ends(); why != "" {
					t.Fatal(e.tell(e.way(uint32(i)), "no way on: "+why))
				}
				ends++
			}
			t.Logf("%d ways on looked for", ends)
			t.Logf("%d distinct states, all to depth %d, %d ways cut off, %v", len(e.seen), e.deep,
				e.pruned, time.Since(began).Round(time.Millisecond))
		})
	}
}

// ends lets all faults end, and reports why there is no agreed end. An operator recovers what has
// lost its voters, after the rest had time.
func (m *model) ends() string {
	m.links, m.pool = [3][3]link{}, nil
	for i := range m.nodes {
		if n := &m.nodes[i]; n.up && n.closed {
			n.up = false
		} else if n.up && n.frozen {
			m.thaw(n, i)
		}
	}
	why := ""
	for try := range 4 {
		for range 30 {
			m.tick()
			for i := range m.nodes {
				for j := range m.nodes {
					if b := m.past(j); i != j && b != 0 && m.nodes[i].up && m.nodes[i].s.knows(b) {
						m.do(move{notice, int8(i), int8(j)})
					}
				}
			}
		}
		if why = m.agreed(); why == "" || m.wrong != "" {
			return m.wrong
		}
		for i := range m.nodes {
			if n := &m.nodes[i]; n.up && !n.s.Deciding(n.clock(m.now)) &&
				(n.s.stage == StageJoined || try > 1) {
				m.step(i, Recover{})
				break
			}
		}
	}
	return why
}

// agreed reports what is missing until all that run are in one configuration, and its owner
// decides.
func (m *model) agreed() string {
	var c *Configuration
	for i := range m.nodes {
		switch n := &m.nodes[i]; {
		case !n.up:
		case n.s.stage != StageJoined || !n.s.Deciding(n.clock(m.now)):
			return fmt.Sprintf("%s is %v without a right in %v", names[i], n.s.stage, n.s.config)
		case c != nil && c.Epoch != n.s.config.Epoch:
			return fmt.Sprintf("%s is in %v, not in %v", names[i], n.s.config, c)
		default:
			c = n.s.config
		}
	}
	if c != nil {
		if o := placeOwners(c, 0); o != 0 && !m.able(index(o)) {
			return fmt.Sprintf("%d does not decide in %v", o, c)
		}
	}
	return ""
}

// tell writes a counterexample down.
func (e *explorer) tell(way []move, why string) string {
	var b strings.Builder
	m := e.begin(e.p)
	m.faults, m.skews = e.faults, e.skews
	for i, v := range way {
		m.do(v)
		fmt.Fprintf(&b, "%3d  t=%d  %-32v", i+1, m.now, v)
		for j := range m.nodes {
			n := &m.nodes[j]
			switch {
			case !n.up:
				fmt.Fprintf(&b, "  %s down", names[j])
			case n.s.stage != StageJoined:
				fmt.Fprintf(&b, "  %s %v", names[j], n.s.stage)
			default:
				fmt.Fprintf(&b, "  %s %v %v", names[j], n.s.config, n.s.parts[0].Kind)
				if left := n.s.right.until - n.clock(m.now); left > 0 {
					fmt.Fprintf(&b, " right %d", left)
				}
			}
		}
		fmt.Fprintln(&b)
	}
	return fmt.Sprintf("%s, %d moves:\n%s     %s", e.name, len(way), b.String(), why)
}
