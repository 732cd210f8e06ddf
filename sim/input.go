package sim

import (
	"errors"

	"penstock/cluster"
)

// inputJudge checks which requests are refused as a whole.
type inputJudge struct{ *common }

// refusal checks an error, or that there is one.
func (j *inputJudge) refusal(p *process, err error, due bool) {
	j.checked[refused]++
	j.requests.Refused++
	j.world.trace.add(happening{at: j.world.now, kind: refuses, node: p.machine})
	var input *cluster.InputError
	var unknown *cluster.UnknownLimitError
	switch {
	case err == nil:
		j.fail(refused, "%s decides a request that is in error", p.machine.id)
	case !due:
		j.fail(refused, "%s refuses a request that is in order: %v", p.machine.id, err)
	case !errors.As(err, &input) && !errors.As(err, &unknown):
		j.fail(refused, "%s refuses a request with an error that does not say what is wrong: %v",
			p.machine.id, err)
	}
}
