package ownership

import (
	"fmt"
	"hash"
)

// hasher writes states in few bytes.
type hasher struct {
	hash.Hash64
	buf []byte
}

func (h *hasher) num(numbers ...int) {
	for _, x := range numbers {
		h.buf = append(h.buf, byte(x), byte(x>>8))
	}
}

func (h *hasher) bit(bits ...bool) {
	var x byte
	for i, b := range bits {
		if b {
			x |= 1 << i
		}
	}
	h.buf = append(h.buf, x)
}

// long is an age after which nothing changes any more.
const long = 7

func (h *hasher) at(now, t Instant) {
	h.buf = append(h.buf, byte(max(-long, min(long, t-now))))
}

func (h *hasher) boots(boots []Boot) {
	h.buf = append(h.buf, byte(len(boots)))
	for _, b := range boots {
		h.buf = append(h.buf, byte(b))
	}
}

func (h *hasher) epoch(e Epoch) {
	h.buf = append(append(h.buf, byte(len(e.Lineage)), byte(e.Number)), e.Lineage...)
}

func (h *hasher) config(c *Configuration) {
	if c == nil {
		h.buf = append(h.buf, 255)
		return
	}
	h.epoch(c.Epoch)
	h.epoch(c.Previous)
	h.buf = append(h.buf, byte(len(c.Members)), byte(len(c.Rivals)))
	for _, m := range c.Members {
		h.buf = append(h.buf, byte(m.Boot), byte(m.Role))
	}
	for _, m := range c.Rivals {
		h.buf = append(h.buf, byte(m.Boot))
	}
	h.boots(c.Voters)
}

func (h *hasher) state(now Instant, s *State) {
	h.num(int(s.me.Boot), int(s.me.Role), int(s.stage), len(s.chain), len(s.roster))
	h.bit(s.leaving, s.closed, s.voter.sealed, s.voter.closed, s.right.ended, s.proposer.wants,
		s.proposer.denied, s.proposer.sure, s.proposer.fresh, s.founding.gaveUp)
	h.config(s.config)
	for _, c := range s.chain {
		h.config(c)
	}
	h.boots(s.evicted)
	for _, t := range []Instant{
		s.polled, s.renewed, s.right.until, s.right.floor, s.right.lost, s.right.began, s.right.had,
		s.founding.since,
	} {
		h.at(now, t)
	}
	v, p, f, o := &s.voter, &s.proposer, &s.fork, &s.founding
	h.num(int(v.promised), int(v.accepted), int(v.pending), int(p.phase), int(p.ballot),
		int(p.best), int(p.tries))
	h.num(int(f.kind), int(f.of), int(o.votedFor), len(o.met))
	if v.sealed {
		h.at(now, v.sealedAt)
	}
	if p.wants {
		h.at(now, p.since)
	}
	if v.promised > 0 {
		h.at(now, v.heardAt)
	}
	h.num(int(p.before.ballot))
	h.config(p.before.value)
	h.boots(p.before.yes)
	if f.on() {
		h.at(now, f.since)
	}
	h.config(v.value)
	h.config(v.pendingValue)
	h.num(int(v.refused.of))
	h.config(v.refused.value)
	h.config(p.value)
	h.boots(p.yes)
	h.boots(f.answered)
	h.boots(o.votes)
	for i := range s.roster {
		e := &s.roster[i]
		h.num(int(e.boot), int(e.sign))
		h.bit(e.asked, e.leaving, e.stays, e.seen, e.unreached != never)
		h.boots(e.missed)
		for _, t := range []Instant{
			e.signAt, e.heard, e.askedAt, e.renewed, e.acked, e.wished, e.unreached, e.consented,
			e.lapsed,
		} {
			h.at(now, t)
		}
	}
}

// keeper hashes a boot with its first partition.
func (h *hasher) keeper(now Instant, s *keeper) {
	h.state(now, s.State)
	q := s.parts[0]
	h.num(int(q.Kind), int(q.Epoch), int(q.To), int(q.Bound), int(q.Copy.Of), int(q.Copy.Epoch))
	h.bit(q.Copy.Whole)
	h.boots(s.claims.answered)
	h.num(s.claims.free...)
	h.num(len(s.claims.parts), len(s.claims.better), s.claims.tries)
}

// message hashes what is late. Renewals have an instant of their sender's clock, which comes back.
func (h *hasher) message(now, there Instant, m Message) {
	switch m := m.(type) {
	case Renew:
		h.buf = append(h.buf, 1)
		h.epoch(m.Epoch)
		h.at(now, m.Sent)
		h.bit(m.Leaving)
		h.boots(m.Unreached)
	case RenewAck:
		h.buf = append(h.buf, 2)
		h.epoch(m.Epoch)
		h.at(there, m.Sent)
	default:
		h.buf = fmt.Appendf(h.buf, "%T%v", m, m)
		if hello, is := m.(Hello); is {
			h.config(hello.Config)
		}
	}
}
