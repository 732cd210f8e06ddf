package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Takes of several owners that stand or fall together are set aside first, and charged after the
// client has heard yes. The judge knows of a charge what the client knows: it is certain from the
// yes on, and until it comes it counts as spent, because the same is set aside. So the most
// generous reference charges at the yes, and nothing before. No node is accused of saying no too
// early until all that may have been set aside is charged or released, by which time the strictest
// reference has it too; in worlds with faults, where nobody knows what was charged, until it is
// forgotten or a decision has told. What an owner refuses, it refuses for all, and the client has
// to hear it. An owner that has said yes to more than there is has to be found, by itself or from
// outside.

// spreadJudge follows such takes.
type spreadJudge struct {
	*common
	owner   *ownerJudge
	carrier *carrier
	counted *countedJudge
	exact   *exactJudge
	once    *onceJudge
}

// asideLasts is how long something may be set aside, and charged, after its request's deadline.
const asideLasts = 3 * time.Second

// holdOrigin is the bit by which the ID of what is set aside differs from that of its take, and
// heldOrigin has the one as well that says that a node has drawn it.
const (
	holdOrigin = 1 << 61
	heldOrigin = holdOrigin | 1<<63
)

// spreads notes that something may be set aside of what h asks for, if it has several owners.
func (j *spreadJudge) spreads(h *hearing) {
	h.spread = false
	r := h.request
	if r.atomic && len(r.items) > 1 && r.items[0].Op != cluster.OpReserve &&
		j.hasSeveralOwners(h) {
		j.begins(h)
	}
}

// sends notes what the node of h has others set aside, or look at: so it decides item by item what
// had one owner in its eyes, since two nodes hold its keys. What stands or falls together is taken,
// so a node that only looks at some of it will charge it afterwards.
func (j *spreadJudge) sends(h *hearing, calls []cluster.Call) {
	aside := func(it cluster.AskItem) bool {
		return it.Op == cluster.OpReserve && it.Hold.Charge ||
			it.Op == cluster.OpPeek && h.request.atomic && len(h.items) > 1
	}
	for c := range calls {
		if !h.spread && slices.ContainsFunc(calls[c].Ask.Items, aside) {
			j.begins(h)
		}
		h.setsAside(calls[c].Ask.Items)
	}
}

// setsAside notes what the node of h has others set aside for a take, and whether it tries again:
// then it has refused, and released, what it asks for now under the complement of the number
// before.
func (h *hearing) setsAside(items []cluster.AskItem) {
	for i := range items {
		if it := &items[i]; it.Op == cluster.OpReserve && it.Hold.Charge {
			h.again = h.again || slices.Contains(h.setAside, ^it.ID.Sequence)
			h.setAside = append(h.setAside, it.ID.Sequence)
		}
	}
}

// keeps notes that the node of h has set the i-th item of such a request aside itself, or has only
// looked at it.
func (j *spreadJudge) keeps(h *hearing, i int) {
	if d := &h.out[i]; !h.spread && h.request.atomic && d.Source == cluster.SourceOwner &&
		h.namesHold(i) {
		j.begins(h)
	}
}

// namesHold reports whether the node of h has decided the i-th item under the ID of a hold: that
// differs in one bit from the ID of the take, which may be drawn by the node itself, with any bits.
func (h *hearing) namesHold(i int) bool {
	of := h.request.items[i].ID
	if of == (cluster.ID{}) {
		of = h.request.items[0].ID
	}
	if of == (cluster.ID{}) {
		of.Origin = h.process.boot
	}
	id := h.out[i].ID
	return id != (cluster.ID{}) && (id.Origin^of.Origin)&holdOrigin != 0
}

// begins notes that something may be set aside of what h asks for.
func (j *spreadJudge) begins(h *hearing) {
	h.spread = true
	r := h.request
	j.requests.Spread++
	lasts := r.patience + asideLasts
	if j.world.plan.sky != calm {
		lasts += owedLasts
	}
	for i := range r.terms {
		a := r.terms[i].account
		r.terms[i].backBy = j.world.now + lasts
		ref := &a.reference
		ref.held = max(ref.held, j.world.now+lasts)
		ref.unphased = ref.unphased || phased(a.spec)
		var counts time.Duration
		// it may be charged more than once, or by a node that the judge has not heard of
		if j.world.plan.sky != calm {
			counts = forgets(a.spec)
		}
		ref.goBlind(h.process, ref.held, counts)
		j.counted.hides(a, ref.held)
	}
}

// hasSeveralOwners reports whether the items stand or fall together and have several owners in the
// eyes of the node.
func (j *spreadJudge) hasSeveralOwners(h *hearing) bool {
	first := j.ownerIn(h.view, h.request.terms[0].account)
	return h.request.atomic && slices.ContainsFunc(h.request.terms, func(t term) bool {
		return j.ownerIn(h.view, t.account) != first
	})
}

// grants are the answers of owners that were to set something aside, by the ID of the take.
type grants struct {
	answers map[cluster.ID]grant // the latest of each
	order   []grant              // oldest first; once for each answer
}

type grant struct {
	id      cluster.ID
	at      time.Duration
	allowed bool
}

// grantsLast is for how long somebody may ask again to set the same aside: a client has patience
// for 10 s at most and repeats itself a little later, and what it asks for may lie at the door of a
// frozen machine.
const grantsLast = 2 * owedLasts

func newGrants() grants { return grants{answers: make(map[cluster.ID]grant)} }

func (g *grants) allowed(id cluster.ID) bool { return g.answers[id].allowed }

// add notes an answer, and drops those that nobody asks for any more.
func (g *grants) add(id cluster.ID, now time.Duration, allowed bool) {
	for len(g.order) > 0 && g.order[0].at+grantsLast < now {
		if old := g.order[0]; g.answers[old.id] == old {
			delete(g.answers, old.id)
		}
		g.order = g.order[1:]
	}
	g.answers[id] = grant{id, now, allowed}
	g.order = append(g.order, g.answers[id])
}

// setsAside checks what p, which decides for a key, has answered when it was to set something
// aside.
func (j *spreadJudge) setsAside(p *process, it *asked, got limiter.Decision) {
	a, now := it.account, p.now()
	r := &a.reference
	j.owner.mayDecide(p, it.account, it.doubt)
	id := it.id
	id.Origin &^= heldOrigin
	if j.once.apart.allowed(id) || j.once.wasWhole(id) { // it was asked once more
		return
	}
	if h, found := p.stated.ledger.get(it.id); got.Allowed && found &&
		h.State != limiter.HoldOpen {
		// what it answered to itself, before it tried again under another id, which nobody saw, and
		// which is over
		return
	}
	j.once.apart.add(id, j.world.now, got.Allowed)
	j.carrier.bring(a, p)
	r.settle(now, a.spec)
	if r.strict == nil {
		r.loosen(now, a.spec)
	}
	if j.checked[exact]++; got.Allowed && !r.isVague(a.spec) &&
		!r.most(now, a.spec).peek(now, a.spec, it.cost).Allowed {
		j.exact.judged(p, it, generous, got, r.loose.peek(now, a.spec, it.cost))
	}
}

// aside is by how much more is left of the i-th item's count, once nothing is set aside, than its
// owner has said: what it had set aside for the item and for those before it, but for those that it
// remembers as charged. A node that knows of no owner has none set aside: the owner that is found
// looks at the item together with those before it, and its yes says what all of them would leave,
// while its no has counted none.
func (h *hearing) aside(i int, charged func(cluster.ID) bool) (units int64) {
	looked := !slices.Contains(h.setAside, h.items[i].ID.Sequence)
	if looked && !h.out[i].Allowed {
		return 0
	}
	for k := range h.out[:i+1] {
		a, it, d := h.request.terms[k].account, &h.items[k], &h.out[k]
		decided := d.Source == cluster.SourceOwner || d.Source == cluster.SourceForwarded
		counted := looked || decided && d.Allowed && !charged(it.ID)
		if a == h.request.terms[i].account && counted && !looksOnly(a, it) {
			units += it.Cost
		}
	}
	return units
}

// unheld is a decision as a client without a hold hears it. Such a client does not hear that what
// was set aside is released already.
func unheld(d limiter.Decision) limiter.Decision {
	if d.Hold == limiter.HoldOpen || d.Allowed && d.Hold == limiter.HoldInTheWay {
		d.Hold = limiter.HoldNone
	}
	return d
}

// charged follows a yes to what was set aside. In a world with faults the node that was to have it
// charged may be gone before it is; and nothing is set aside of a limit that never denies until it
// is charged.
func (j *spreadJudge) charged(t *term, cost int64) {
	a := t.account
	r := &a.reference
	if cost > 0 {
		r.late = append(r.late, cost)
	} else {
		// windows may have two to give back
		r.backs = min(r.backs-max(cost, -capacityOf(a.spec)), 2*capacityOf(a.spec))
	}
	switch {
	case t.counted:
	case cost > 0 && (j.world.plan.sky != calm || watches(a.spec)):
		a.heard.forgive(cost * a.supply.unit)
	default:
		r.charge(r.by.now(), a.spec, cost)
		a.note(r.by, cost)
	}
}

// haveRefused reports whether a node that decides has refused for all.
func haveRefused(h *hearing, out []cluster.Decision) bool {
	for i := range out {
		if out[i].Source != cluster.SourceFallback && !out[i].Allowed &&
			!watches(h.request.terms[i].account.spec) {
			return true
		}
	}
	return false
}

func (r *reference) isHeld() bool { return r.held != 0 && r.last <= r.held }

// isVague reports whether a charge that comes later than is known may let a limit admit more: where
// it moves the moment at which tokens come or a window opens, until that is known again, or where
// what is set aside leaves no gap behind it.
func (r *reference) isVague(s *limiter.Spec) bool {
	return r.unphased || r.isHeld() && s.MinGap > 0
}

// phased reports whether charges decide when time passes for s.
func phased(s *limiter.Spec) bool {
	return s.Algorithm == limiter.TokenBucket || s.Algorithm == limiter.FixedWindow &&
		s.Anchor == limiter.FirstHit
}

// looksOnly reports whether nothing is set aside for an item of several owners; then its owner says
// what it would decide, each time that it is asked.
func looksOnly(a *account, it *cluster.Item) bool {
	return it.Cost <= 0 || it.Cost > capacityOf(a.spec) || watches(a.spec)
}
