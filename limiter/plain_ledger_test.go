package limiter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// plainBook is a ledger in plain words: a list of holds, and what is spent under limits with one
// window that never ends.
type plainBook struct {
	most  bounds
	away  map[uint64]bool // keys that others decide on
	shut  map[uint64]bool // keys that the table does not decide on any more
	holds map[HoldID]*plainHold
	spent map[string]int64
	told  []*plainHold    // of those to be told, once each
	gone  map[HoldID]bool // of keys that were not kept
	now   Instant
}

type plainHold struct {
	Hold
	look Instant // when its deadline is looked at next
}

func (p *plainBook) has(l *Limit, key string) (reserved int64) {
	for _, h := range p.holds {
		if h.State == HoldOpen && h.Limit.Name == l.Name && h.Key == key {
			reserved += h.Units
		}
	}
	return reserved
}

func (p *plainBook) left(l *Limit, key string) int64 {
	return l.Limit - p.spent[l.Name+key] - p.has(l, key)
}

func (p *plainBook) closed(hash uint64) bool { return p.away[hash] || p.shut[hash] }

// peek is what is said of a key: whether others decide on it, and what is left.
func (p *plainBook) peek(l *Limit, key string) Decision {
	if p.closed(Hash(key)) {
		return Decision{Closed: true}
	}
	return Decision{Remaining: max(0, p.left(l, key))}
}

// opens counts the open holds that match.
func (p *plainBook) opens(match func(h *plainHold) bool) (n int) {
	for _, h := range p.holds {
		if h.State == HoldOpen && match(h) {
			n++
		}
	}
	return n
}

// tooMany is what there are too many holds of for a request, one of n.
func (p *plainBook) tooMany(r *HoldRequest, n int) HoldState {
	leftOfAll := p.most.all - p.opens(func(*plainHold) bool { return true }) - n
	leftOfLimit := p.most.limit - n -
		p.opens(func(h *plainHold) bool { return h.Limit.Name == r.Limit.Name })
	ofClient := p.opens(func(h *plainHold) bool { return h.Client == r.Client })
	ofClientHere := p.opens(func(h *plainHold) bool {
		return h.Client == r.Client && h.Limit.Name == r.Limit.Name
	})
	ofHolder := p.opens(func(h *plainHold) bool {
		return h.Holder == r.Holder && h.Limit.Name == r.Limit.Name
	})
	switch {
	case leftOfAll < 0:
		return HoldsOfNode
	case leftOfLimit < 0:
		return HoldsOfLimit
	case r.Client != 0 && (ofClient+n > leftOfAll || ofClientHere+n > leftOfLimit):
		return HoldsOfClient
	case ofHolder+n > p.most.holder:
		return HoldsOfHolder
	}
	return HoldNone
}

// open is what Ledger.Open answers; of a Decision only Allowed, Remaining, Hold and Closed.
func (p *plainBook) open(requests []HoldRequest) (out []Decision, opened bool) {
	out = make([]Decision, len(requests))
	again, last := 0, 0
	for i := range requests {
		r := &requests[i]
		if h := p.holds[r.ID]; h == nil {
			continue
		} else if h.State != HoldOpen || h.Limit.Name != r.Limit.Name || h.Key != r.Key ||
			h.Holder != r.Holder {
			out[i].Hold = HoldOther
			return out, false
		}
		again, last = again+1, i
	}
	switch {
	case again == len(requests):
		for i, r := range requests {
			out[i] = p.peek(r.Limit, r.Key)
			out[i].Allowed, out[i].Hold = p.holds[r.ID].Units > 0, HoldOpen
		}
		return out, !p.closes(requests, out)
	case again > 0:
		out[last].Hold = HoldOther
		return out, false
	}
	for i := range requests {
		if out[i].Hold = p.tooMany(&requests[i], len(requests)); out[i].Hold != HoldNone {
			return out, false
		}
	}
	return out, p.reserve(requests, out)
}

// closes answers all requests with Closed if one of the keys is, and reports that.
func (p *plainBook) closes(requests []HoldRequest, out []Decision) bool {
	if !slices.ContainsFunc(requests, func(r HoldRequest) bool { return p.closed(r.Hash) }) {
		return false
	}
	for i := range out {
		out[i] = Decision{Closed: true}
	}
	return true
}

func (p *plainBook) reserve(requests []HoldRequest, out []Decision) bool {
	if p.closes(requests, out) {
		return false
	}
	all := true
	for i, r := range requests {
		h := &plainHold{Hold{
			ID: r.ID, Limit: r.Limit, Key: r.Key, Holder: r.Holder, Client: r.Client,
			Deadline: p.now.Add(r.TTL), Charge: r.Charge, State: HoldOpen,
		}, p.now.Add(r.TTL)}
		if out[i].Allowed = r.Units <= p.left(r.Limit, r.Key); out[i].Allowed {
			h.Units = r.Units
		} else if p.has(r.Limit, r.Key) > 0 {
			out[i].Hold = HoldInTheWay
		}
		all = all && (out[i].Allowed || r.Limit.DryRun)
		p.holds[r.ID] = h
		out[i].Remaining = max(0, p.left(r.Limit, r.Key))
	}
	for i, r := range requests {
		if all {
			out[i].Hold = HoldOpen
			p.told = append(p.told, p.holds[r.ID])
		} else {
			delete(p.holds, r.ID)
		}
	}
	for i, r := range requests {
		if !all {
			out[i].Remaining = max(0, p.left(r.Limit, r.Key))
		}
	}
	return all
}

// find returns the hold, or what is answered in its place.
func (p *plainBook) find(id HoldID, hash uint64, holder string) (*plainHold, Decision) {
	h := p.holds[id]
	switch {
	case p.away[hash]:
		return nil, Decision{Closed: true}
	case h == nil || Hash(h.Key) != hash:
		return nil, Decision{Hold: HoldUnknown}
	case holder != "" && h.Holder != holder:
		return nil, Decision{Hold: HoldForeign}
	}
	return h, Decision{}
}

func (p *plainBook) settle(id HoldID, hash uint64, holder string, used int64) Decision {
	h, d := p.find(id, hash, holder)
	switch {
	case h == nil:
		return d
	case h.State == HoldSettled && h.Used != used:
		return Decision{Hold: HoldOther}
	case h.State == HoldOpen && p.closed(hash):
		return Decision{Closed: true}
	}
	if h.State == HoldOpen {
		p.end(h, HoldSettled, used)
	}
	d = p.peek(h.Limit, h.Key)
	d.Hold = h.State
	return d
}

// end charges what was used, as far as the debt of the limit goes, and releases the rest.
func (p *plainBook) end(h *plainHold, state HoldState, used int64) {
	if h.Limit.Algorithm != Concurrency {
		most := h.Limit.Limit + h.Limit.MaxDebt
		p.spent[h.Limit.Name+h.Key] = min(most, p.spent[h.Limit.Name+h.Key]+used)
	}
	p.remember(h, state, used)
	p.tell(h)
}

func (p *plainBook) remember(h *plainHold, state HoldState, used int64) {
	h.Units, h.Used, h.State, h.forget = 0, used, state, p.now.Add(HoldRemembered)
}

func (p *plainBook) tell(h *plainHold) {
	if !slices.Contains(p.told, h) {
		p.told = append(p.told, h)
	}
}

func (p *plainBook) extend(id HoldID, hash uint64, holder string, ttl time.Duration) Decision {
	h, d := p.find(id, hash, holder)
	if h == nil {
		return d
	}
	d = p.peek(h.Limit, h.Key)
	if d.Hold = h.State; h.State == HoldOpen && !d.Closed && h.Deadline < p.now.Add(ttl) {
		h.Deadline, h.stored = p.now.Add(ttl), false
		p.tell(h)
	}
	return d
}

// expire looks at the deadlines that are over. Where others decide it looks again a little later.
func (p *plainBook) expire(kept func(hash uint64) bool) (ranOut int) {
	for _, h := range p.holds {
		switch {
		case h.State != HoldOpen || h.look > p.now:
		case h.Deadline > p.now:
			h.look = h.Deadline
		case p.closed(Hash(h.Key)):
			h.look = p.now.Add(lookAgain)
		case h.Limit.Unsettled == UnsettledRelease && !h.Charge:
			p.end(h, HoldRanOut, 0)
			ranOut++
		default:
			p.end(h, HoldRanOut, h.Units)
			ranOut++
		}
	}
	maps.DeleteFunc(p.holds, func(_ HoldID, h *plainHold) bool {
		return h.State != HoldOpen && h.forget <= p.now
	})
	for id, h := range p.holds {
		if kept != nil && !kept(Hash(h.Key)) {
			p.gone[id] = true
			delete(p.holds, id)
		}
	}
	return ranOut
}

// merge takes a hold over that comes from elsewhere, or from a file.
func (p *plainBook) merge(h *Hold, stored bool) (good bool) {
	if h.State != HoldOpen && h.State != HoldSettled && h.State != HoldRanOut || h.Units < 0 ||
		h.Units > MaxLimit {
		return false
	}
	own := p.holds[h.ID]
	if own != nil && !stored {
		own.stored = false
	}
	switch {
	case own == nil:
		own = &plainHold{*h, h.Deadline}
		if own.stored = stored; own.State != HoldOpen {
			p.remember(own, h.State, h.Used)
		}
		p.holds[h.ID] = own
	case own.State != HoldOpen, own.Key != h.Key:
	case h.State == HoldOpen:
		own.Deadline = max(own.Deadline, h.Deadline)
	case p.closed(Hash(own.Key)):
		p.remember(own, h.State, h.Used)
	default:
		p.end(own, h.State, h.Used)
	}
	return true
}

func (p *plainBook) unrestore() {
	maps.DeleteFunc(p.holds, func(_ HoldID, h *plainHold) bool {
		return h.stored && h.State == HoldOpen
	})
}

// seen is what all can see of a hold.
func seen(h *Hold) string {
	return fmt.Sprint(h.ID, h.Limit.Name, h.Key, h.Holder, h.Client, h.Units, h.Deadline, h.Charge,
		h.State, h.Used)
}

// list is the holds that match, in an order.
func (p *plainBook) list(match func(h *plainHold) bool, order func(a, b *plainHold) int) []string {
	list := slices.SortedFunc(maps.Values(p.holds), order)
	var all []string
	for _, h := range list {
		if match(h) {
			all = append(all, seen(&h.Hold))
		}
	}
	return all
}

func byID(a, b *plainHold) int {
	return cmp.Or(cmp.Compare(a.ID.Origin, b.ID.Origin), cmp.Compare(a.ID.Sequence, b.ID.Sequence))
}

func byDeadline(a, b *plainHold) int {
	return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), byID(a, b))
}

// ledgerPair is a ledger and the same in plain words.
type ledgerPair struct {
	pair
	plain *plainBook
	book  *Ledger
}

func newLedgerPair(t *testing.T, seed uint64) *ledgerPair {
	p := &ledgerPair{pair: newPair(t, seed)}
	p.plain = &plainBook{
		most: bounds{12, 8, 4}, away: map[uint64]bool{}, shut: map[uint64]bool{},
		holds: map[HoldID]*plainHold{}, gone: map[HoldID]bool{}, spent: map[string]int64{},
		now: oneOf(p.draw, Instant(1e18), 0, -Instant(time.Second)),
	}
	here := func(hash uint64) bool { return !p.plain.away[hash] }
	p.table = NewTable(TableConfig{Bytes: 1, Shards: 1})
	p.table.Guard(func(_ Instant, hash uint64) bool { return !p.plain.closed(hash) },
		func(uint64) bool { return true })
	p.book = NewLedger(p.table, here)
	p.book.most = p.plain.most
	p.book.Track()
	for _, s := range []Spec{
		{Name: "debt", Algorithm: FixedWindow, Limit: 20, MaxDebt: 5},
		{Name: "quiet", Algorithm: FixedWindow, Limit: 3, DryRun: true},
		{Name: "release", Algorithm: FixedWindow, Limit: 20, Unsettled: UnsettledRelease},
		{Name: "permits", Algorithm: Concurrency, Limit: 9},
	} {
		s.Per = 200 * 24 * time.Hour
		if s.Algorithm == FixedWindow {
			s.Anchor = FirstHit
		}
		p.limits = append(p.limits, mustBe(New(s)))
	}
	return p
}
