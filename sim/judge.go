package sim

// judge is the court of a world: a set of judges, each of one promise. They see what happens, the
// plan of the world and what nodes have stated, and ask no node (TestJudgesAskNoNode). They check
// every decision in two ways that share nothing: from inside, by deciding everything once more as
// one naive limiter would (exactJudge); and from outside, by what clients saw (boundedJudge). The
// court itself says which judge hears of what, in which order.
type judge struct {
	*common
	exact     *exactJudge
	counted   *countedJudge
	once      *onceJudge
	aside     *asideJudge
	lent      *lentJudge
	spread    *spreadJudge
	replica   *replicaJudge
	denied    *deniedJudge
	marked    *markedJudge
	answer    *answerJudge
	bounded   *boundedJudge
	available *availableJudge
	deadline  *deadlineJudge
	input     *inputJudge
	kept      *keptJudge
	live      *liveJudge
	converged *convergedJudge
	carrier   *carrier
	trees     *treeJudge // of worlds of trees, else nil: then no account is opened
}

func newJudge(w *world) *judge {
	c := newCommon(w)
	j := &judge{
		common: c, counted: &countedJudge{common: c, cold: -warmUp},
		answer: &answerJudge{common: c}, bounded: &boundedJudge{c},
		available: newAvailableJudge(c), deadline: &deadlineJudge{c}, input: &inputJudge{c},
		live: &liveJudge{c}, converged: &convergedJudge{c}, trees: newTreeJudge(c),
	}
	owner := &ownerJudge{common: c}
	j.carrier = &carrier{c, j.counted, &diskJudge{common: c}, troublesOf(w.plan.faults)}
	j.aside = &asideJudge{c, owner, j.carrier, j.bounded, newBooks()}
	j.lent = &lentJudge{c, j.aside}
	j.once = &onceJudge{
		common: c, carrier: j.carrier, counted: j.counted, apart: newGrants(),
		whole: newGrants(),
	}
	j.exact = &exactJudge{
		common: c, owner: owner, carrier: j.carrier, counted: j.counted, once: j.once,
		aside: j.aside,
	}
	j.spread = &spreadJudge{c, owner, j.carrier, j.counted, j.exact, j.once}
	j.replica = &replicaJudge{c, j.bounded}
	j.denied = &deniedJudge{c, j.once}
	j.marked = &markedJudge{c, j.exact, j.once, j.aside}
	j.kept = &keptJudge{c, j.carrier, j.counted, j.aside}
	return j
}

// struck hears of a fault that has struck.
func (j *judge) struck(f fault) {
	j.available.struck(f)
	if j.trees != nil {
		j.trees.struck(f)
	}
}

// fenced hears that p has just let go of all that it decided for, and has not said so yet.
func (j *judge) fenced(p *process) {
	if j.trees != nil {
		j.trees.fenced(p)
	}
}

// atRest looks once more at everything when nothing more happens: nobody may wait, and what tables
// hold must be what the reference holds, on every node.
func (j *judge) atRest() {
	if !j.live.atRest() {
		return
	}
	for _, m := range j.world.machines {
		switch {
		case m.process == nil:
		case j.trees != nil:
			j.trees.audit(m.process)
		default:
			j.kept.audit(m.process)
			j.replica.auditReplicas(m.process)
		}
	}
}
