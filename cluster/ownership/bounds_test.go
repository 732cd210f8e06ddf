package ownership

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Promise: a process that stops says so, also if its boot has ended for another reason before.
func TestClosingIsTheLastWord(t *testing.T) {
	s, now, _ := claimer()
	s.Step(now, Received{10, Missed{s.config.Epoch}})
	if s.Ending() != Outdated {
		t.Fatalf("ended as %v", s.Ending())
	}
	if s.Step(now, Poll{}); s.Ending() != Outdated {
		t.Errorf("after a poll it has ended as %v", s.Ending())
	}
	if s.Step(now, Closing{}); s.Ending() != Closed {
		t.Errorf("its process stops, and it has ended as %v", s.Ending())
	}
}

// Promise: of boots that are no members only rivals and candidates are remembered in a new epoch.
func TestWhoIsRemembered(t *testing.T) {
	s, now, _ := claimer()
	const rival, candidate, stranger = Boot(80), Boot(81), Boot(82)
	for _, b := range []Boot{rival, candidate, stranger} {
		s.entry(b).sign = SignEnded
	}
	s.entry(candidate).asked = true
	c := *s.config
	c.Previous, c.Epoch.Number = c.Epoch, 8
	c.Rivals = []Member{{ID: "r", Boot: rival}}
	s.install(now, &c)
	known := map[Boot]bool{}
	for _, k := range s.Roster(now) {
		known[k.Boot] = true
	}
	if !known[rival] || !known[candidate] || known[stranger] || len(known) != 6 {
		t.Errorf("known are %v", known)
	}
}

// Promise: only a voter proposes what should follow, and none that follows a child.
func TestWhoProposes(t *testing.T) {
	proposed := 0
	for seed := range uint64(500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := drawn(draw)
		calmed(s, now)
		s.entry(70).asked, s.entry(70).heard = true, now
		s.entry(70).member = Member{ID: "new", Boot: 70}
		s.stage = pick(draw, StageJoined, StageJoined, StageCandidate)
		s.voter.closed = draw.IntN(4) == 0
		may := s.stage == StageJoined && s.config.Votes(s.me.Boot) && !s.voter.closed
		s.propose(now)
		s.propose(now.Add(s.p.Step * time.Duration(MaxVoters)))
		if does := len(s.out.own)+len(s.out.Sends) > 0; does != may {
			t.Fatalf("seed %d: it proposes: %t, want %t", seed, does, may)
		}
		if may {
			proposed++
		}
	}
	if proposed < 50 {
		t.Errorf("%d of 500 may propose: that proves little", proposed)
	}
}

// Promise: a renewal stirs nothing if it says what is known. Each thing that is new stirs.
func TestRenewalsThatStir(t *testing.T) {
	for name, row := range map[string]struct {
		e      entry
		m      Renew
		repeat bool
	}{
		"as before":           {entry{seen: true}, Renew{}, true},
		"leaving as before":   {entry{seen: true, leaving: true}, Renew{Leaving: true}, true},
		"the first":           {entry{}, Renew{}, false},
		"it leaves":           {entry{seen: true}, Renew{Leaving: true}, false},
		"it stays":            {entry{seen: true, leaving: true}, Renew{}, false},
		"it misses one":       {entry{seen: true}, Renew{Unreached: []Boot{1}}, false},
		"it misses none more": {entry{seen: true, missed: []Boot{1}}, Renew{}, false},
		"it misses as before": {
			entry{seen: true, missed: []Boot{1}}, Renew{Unreached: []Boot{1}}, false,
		},
	} {
		if got := row.e.repeats(row.m); got != row.repeat {
			t.Errorf("%s: nothing new: %t", name, got)
		}
	}
}

// Promise: a gift or a copy of what is no partition changes nothing.
func TestPartitionsThatAreNone(t *testing.T) {
	s, now, _ := claimer()
	for _, i := range []int{-1, len(s.parts)} {
		for _, m := range []Message{
			Gift{s.config.Epoch, i}, CopyOf{s.config.Epoch, i, true},
		} {
			if fx := s.Step(now, Received{10, m}); len(fx.Sends)+len(fx.Parts) > 0 {
				t.Errorf("%v is answered with %v", m, fx)
			}
		}
	}
}

// Promise: nobody founds a cluster before each boot that is said to be in one has answered that it
// is in none.
func TestFoundersWaitForMembers(t *testing.T) {
	for _, row := range []struct {
		met    []string
		founds bool
	}{{nil, false}, {[]string{"c"}, false}, {[]string{"b"}, true}, {[]string{"b", "c"}, true}} {
		p := Default()
		e := Of("a", "b", "c")
		e.Members = []string{"b"}
		s := New(&p, Member{ID: "a", Boot: 1}, e, 0)
		now := Instant(time.Hour)
		asks := false
		for range 100 {
			now = now.Add(20 * time.Millisecond)
			for _, id := range row.met {
				b := Boot(id[0])
				s.Step(now, Received{b, Hello{Member: Member{ID: id, Boot: b}, Reply: true}})
			}
			for _, x := range s.Step(now, Poll{}).Sends {
				_, is := x.Message.(Vote)
				asks = asks || is
			}
		}
		if asks != row.founds {
			t.Errorf("with answers of %v it asks for votes: %t", row.met, asks)
		}
	}
}
