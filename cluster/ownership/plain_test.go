package ownership

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Tests of this family (plain_*_test.go) have a boot, of which all is drawn, do one thing, and a
// copy of it do the same in plain words. Then both must be the same in all that they know, and
// have put out the same. The plain words call only judgements that have such a test themselves
// (sight_test.go, follows_test.go).

// anything is a boot like drawn, of which all else is drawn as well.
func anything(draw *rand.Rand) (s *keeper, now Instant) {
	state, now := drawn(draw)
	s = keep(state, 4)
	p := s.p
	for i := range s.parts {
		s.parts[i].Kind = pick(draw, None, Copied, Copied, Held, Giving, Claiming)
	}
	if draw.IntN(2) == 0 {
		calmed(s.State, now)
	}
	near := func() Instant { return now.Add(-pick(draw, p.Step, 2*p.Step, 3*p.Step) + 1) }
	s.me.Boot = pick(draw, s.config.Members...).Boot
	s.me, _ = s.config.Member(s.me.Boot)
	s.origin.former = pick(draw, Boot(0), 60)
	s.origin.elect = Electorate{
		Size: draw.IntN(5), IDs: []string{"a", "b", "x"}, Others: []string{"c", "y"},
		Stamp: pick(draw, Boot(0), 61), Secret: 5,
	}
	until := pick(draw, never, now-1, now, now+1, now.Add(p.Lease))
	s.right = right{
		until: until, floor: pick(draw, never, now.Add(-p.Renew), now+1), ended: draw.IntN(4) == 0,
		began: now.Add(-pick(draw, 0, p.Suspect-1, p.Suspect)),
		lost:  pick(draw, never, now-1, now, now+1),
	}
	s.right.had = min(s.right.lost, now)
	s.polled = pick(draw, never, now, now.Add(-p.Renew), now.Add(-p.Renew)-1, now.Add(-p.Stop),
		now.Add(-p.Stop)-1)
	early := p.Renew - p.Renew/8
	s.renewed = pick(draw, never, now, now.Add(-p.Renew/4)+1, now.Add(-p.Renew/4),
		now.Add(-early)+1, now.Add(-early), now.Add(-p.Renew)+1, now.Add(-p.Renew))
	s.leaving, s.emptied = draw.IntN(3) == 0, draw.IntN(2) == 0
	s.evicted = []Boot{90, 91}
	s.chain = []*Configuration{
		{Epoch: Epoch{Founded(9), 5}, Previous: Epoch{Founded(8), 4}},
		{Epoch: Epoch{Founded(9), 6}, Previous: Epoch{Founded(9), 5}},
		s.config,
	}
	if draw.IntN(4) == 0 {
		s.config.Rivals = []Member{{ID: "r", Boot: 80}}
		s.entry(80).sign = pick(draw, SignUp, SignGone)
		s.chain[1].Members = append(slices.Clone(s.config.Members), s.config.Rivals[0],
			Member{ID: "q", Boot: 81})
		s.entry(81).sign = pick(draw, SignUp, SignGone, SignGone)
	}
	successor := func() *Configuration {
		c := *s.config
		c.Previous, c.Epoch.Number = c.Epoch, c.Epoch.Number+1
		c.Members = slices.DeleteFunc(slices.Clone(c.Members),
			func(Member) bool { return draw.IntN(4) == 0 })
		return &c
	}
	ballot := func() Ballot { return Ballot(16*draw.IntN(3) + draw.IntN(len(s.config.Voters))) }
	if draw.IntN(3) == 0 {
		s.voter = voter{
			sealed: draw.IntN(2) == 0, closed: draw.IntN(3) == 0, sealedAt: near(),
			promised: ballot(), heardAt: near(),
		}
	}
	if draw.IntN(2) == 0 {
		s.voter.accepted, s.voter.value = 16, successor()
	}
	if draw.IntN(2) == 0 {
		s.voter.pending, s.voter.pendingValue = 32, successor()
	}
	if draw.IntN(2) == 0 {
		s.voter.refused = refusal{pick(draw, s.config.Voters...), successor()}
	}
	s.proposer = proposer{ballot: ballot(), tries: uint(draw.IntN(4))}
	if q := &s.proposer; draw.IntN(3) > 0 {
		q.phase, q.value = phase(draw.IntN(4)), successor()
		q.since, q.wants, q.denied = near(), draw.IntN(3) > 0, draw.IntN(2) == 0
		q.sure, q.fresh = draw.IntN(2) == 0, draw.IntN(2) == 0
		for _, v := range s.config.Voters {
			if e := s.entry(v); draw.IntN(3) == 0 {
				q.yes = append(q.yes, v)
				e.consented = now.Add(-pick(draw, 0, p.Renew-1, p.Renew))
			}
		}
	}
	if draw.IntN(3) == 0 {
		s.leaveEpoch(near(), pick(draw, forkFollows, forkPair, forkChild, forkRecovery), s.me.Boot)
		if s.fork.kind == forkFollows {
			s.fork.of = pick(draw, s.config.Members...).Boot
		}
		s.right.lost = pick(draw, s.right.lost, now, now+1)
		s.fork.since = now.Add(-pick(draw, 0, p.quiet()-1, p.quiet()))
	}
	return s, now
}

// puts is how a message goes out.
func (s *State) puts(to Boot, m Message) {
	o := &s.out
	if to == s.me.Boot {
		o.own = append(o.own, m)
	} else {
		o.Sends = append(o.Sends, Send{To: to, Message: m})
	}
}

// putsToVoters is a message to each voter, this one among them.
func (s *State) putsToVoters(m Message) {
	for _, v := range s.config.Voters {
		s.puts(v, m)
	}
}

// alike has s do something, and a copy of it what is said of that. It returns whether that changed
// anything.
func alike(t *testing.T, seed uint64, s *keeper, does, plain func(s *keeper)) bool {
	t.Helper()
	c, before := s.clone(), s.clone()
	plain(c)
	does(s)
	if same := s.knowsAs(c); same {
		return !s.knowsAs(before)
	}
	g, w := strings.Split(s.written(), "\n"), strings.Split(c.written(), "\n")
	at := 0
	for at < len(g) && at < len(w) && g[at] == w[at] {
		at++
	}
	part := func(lines []string) string {
		return strings.Join(lines[min(max(0, at-3), len(lines)):min(at+8, len(lines))], "\n")
	}
	t.Fatalf("seed %d: %v, a boot %d %v, is\n%s\nwant\n%s", seed, s.config, s.me.Boot, s.stage,
		part(g), part(w))
	return false
}

// knowsAs reports whether two boots know the same, and have put out the same.
func (s *keeper) knowsAs(o *keeper) bool {
	s, o = s.noted(), o.noted()
	return equal(reflect.ValueOf(*s), reflect.ValueOf(*o))
}

// noted is a copy without boots of which nothing is known.
func (s *keeper) noted() *keeper {
	c := s.clone()
	c.roster = slices.DeleteFunc(c.roster, func(e entry) bool {
		none := sight{}
		return e.heard == never && !e.asked && reflect.DeepEqual(e, *none.entry(e.boot))
	})
	return c
}

// equal compares what two values hold. No slice is a slice of nothing.
func equal(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		if a.Kind() == reflect.Pointer && (a.Pointer() == b.Pointer() || a.Type() == params) {
			return true
		}
		a, b = a.Elem(), b.Elem()
		return a.Type() == b.Type() && equal(a, b)
	case reflect.Struct:
		for i := range a.NumField() {
			if !equal(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !equal(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}

var params = reflect.TypeFor[*Params]()

// written is all that a boot knows, line by line.
func (s *keeper) written() string {
	var b strings.Builder
	write(&b, "", reflect.ValueOf(*s.noted()))
	return b.String()
}

func write(b *strings.Builder, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			fmt.Fprintf(b, "%s nil\n", name)
		} else if v.Type() != params {
			write(b, name+" "+v.Elem().Type().Name(), v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			write(b, name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			write(b, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
	case reflect.String:
		fmt.Fprintf(b, "%s %q\n", name, v.String())
	default:
		fmt.Fprintf(b, "%s %v\n", name, v)
	}
}
