package sim

// liveJudge checks that nobody is left waiting.
type liveJudge struct{ *common }

// atRest reports whether nobody waits when nothing more happens.
func (j *liveJudge) atRest() bool {
	j.checked[live]++
	n := j.world.tasks.waiting
	if n > 0 {
		j.fail(live, "%d tasks wait for something that will never happen", n)
	}
	return n == 0
}

// restless says that the world goes on and on.
func (j *liveJudge) restless() {
	j.checked[live]++
	j.fail(live, "things still happen %v after all timers were stopped", j.world.now-j.world.rested)
}
