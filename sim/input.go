package sim

import (
	"errors"
	"time"

	"penstock/cluster"
)

// lies is how much sooner than it must a machine that stood still may refuse requests with ids: its
// node looks when it last ticked, which may be a second before.
const lies = time.Second

// mayLie reports whether the node of h may take its request for one that has lain at its door.
func (j *inputJudge) mayLie(h *hearing) bool {
	m := h.process.machine
	return h.named() && m.thawed >= h.process.began && m.thawed-m.froze > memory-lies-clockGrain &&
		h.began <= m.thawed+lies
}

// inputJudge checks which requests are refused as a whole.
type inputJudge struct{ *common }

// refusal checks an error, or that there is one.
func (j *inputJudge) refusal(h *hearing, err error, due bool) {
	p := h.process
	j.checked[refused]++
	j.requests.Refused++
	j.world.trace.add(happening{at: j.world.now, kind: refuses, node: p.machine})
	var input *cluster.InputError
	var unknown *cluster.UnknownLimitError
	switch {
	case err == nil:
		j.fail(refused, "%s decides a request that is in error", p.machine.id)
	case !due && errors.Is(err, cluster.ErrMayBeOld) && j.mayLie(h):
	case !due:
		j.fail(refused, "%s refuses a request that is in order: %v", p.machine.id, err)
	case !errors.As(err, &input) && !errors.As(err, &unknown):
		j.fail(refused, "%s refuses a request with an error that does not say what is wrong: %v",
			p.machine.id, err)
	}
}
