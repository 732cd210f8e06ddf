package sim

import (
	"fmt"
	"iter"
	"runtime"
	"strings"
)

// tasks are the coroutines of a world. A node's code is straight-line: it calls Network.Call and
// goes on with the answer. Here it runs as a coroutine that is left at Call and entered again when
// the answer is there, so that one goroutine plays all nodes, in an order that the schedule alone
// decides.
//
// One of the coroutines is the player: it takes one event after the other, and does the jobs that
// they begin itself. When one of these has to wait, another coroutine is the player from then on.
// So a job that never waits, as most do, enters none.
type tasks struct {
	step    func() bool // takes the next event; false: it was the last
	player  *task
	over    bool    // there is no event any more
	running *task   // nil between events
	idle    []*task // coroutines that are done with their job, to be given another
	waiting int     // tasks that are left in the middle of their job
	panicAt string  // where in the code a job panicked
	lone    task    // does the jobs that never wait; it is no coroutine
}

// task is one coroutine.
type task struct {
	tasks   *tasks
	process *process  // it runs the code of this one
	hearing *hearing  // if it answers a client
	reply   reply     // to what it has sent last
	letters []*letter // that it has sent; it may look at their answers until its job is done
	job     happens
	next    func() (struct{}, bool) // enters it; returns when it is left
	stop    func()                  // ends it: whatever it is in the middle of is unwound
	// called inside: returns when it is entered again, false to unwind
	leave func(struct{}) bool
}

// unwound is the panic that takes an ended task out of the middle of its job.
type unwound struct{}

// play takes steps until there are no more.
func (ts *tasks) play(step func() bool) {
	ts.step = step
	for !ts.over {
		t := ts.spare()
		ts.player = t
		t.next()
		if t.job != nil { // it waits
			ts.left(t.process)
		}
	}
}

// spare is a coroutine without a job.
func (ts *tasks) spare() (t *task) {
	if n := len(ts.idle); n > 0 {
		t, ts.idle = ts.idle[n-1], ts.idle[:n-1]
	} else {
		t = &task{tasks: ts}
		t.next, t.stop = iter.Pull(t.life)
	}
	return t
}

// start runs job as a task of p until it is done or waits for the first time.
func (ts *tasks) start(p *process, job happens) {
	t := ts.spare()
	t.process, t.job = p, job
	t.enter()
}

// last is start for what an event does last: if job has to wait, it returns only when that is done,
// and the player is another one.
func (ts *tasks) last(p *process, job happens) {
	if ts.running != nil {
		panic("sim: a job began while another one runs; only events may begin one")
	}
	t := ts.player
	t.process, t.job, ts.running = p, job, t
	t.do()
	if ts.player == t {
		ts.left(p)
	}
}

// left notes that a task of p is done or waits for the first time.
func (ts *tasks) left(p *process) {
	ts.running = nil
	p.states()
	j := p.machine.world.judge // a node may have settled something with itself
	j.aside.settling(nil, nil)
	j.aside.looksAtHolds(p)
}

// direct has a job of p done that never waits, where it stands: to enter a coroutine and to leave
// it costs more than most answers do.
func (ts *tasks) direct(p *process, job happens) {
	if ts.running != nil {
		panic("sim: a job began while another one runs; only events may begin one")
	}
	ts.lone.process, ts.lone.job, ts.running = p, job, &ts.lone
	job.happen()
	ts.lone.process, ts.lone.job, ts.running = nil, nil, nil
}

// enter goes on with the task until it is done or waits again.
func (t *task) enter() {
	if t.tasks.running != nil {
		panic("sim: a task was entered while another one runs; only events may enter tasks")
	}
	t.tasks.running = t
	p, visit := t.process, t.hearing != nil
	t.next()
	if t.tasks.running = nil; !visit { // what a node says to a client is looked at by observe
		t.tasks.left(p)
	}
}

// wait leaves the running task until somebody calls enter.
func (ts *tasks) wait() {
	t := ts.running
	if t == nil {
		panic("sim: Network.Call outside of a task: nobody could go on meanwhile")
	}
	if t == &ts.lone {
		panic("sim: Network.Call in a job that was said never to wait")
	}
	if t.hearing != nil {
		t.process.states()
		t.process.machine.world.judge.observe(t.hearing)
	}
	ts.waiting++
	t.process.waiting = append(t.process.waiting, t)
	entered := t.leave(struct{}{})
	ts.waiting--
	if !entered {
		panic(unwound{})
	}
	t.process.forget(t)
}

// end unwinds a task that waits: its process is dead, or the world is over.
func (t *task) end() { t.stop() }

// close ends the coroutines that have no job.
func (ts *tasks) close() {
	for _, t := range ts.idle {
		t.stop()
	}
	ts.idle = nil
}

// life is what a task does: one job after another, or one event after another.
func (t *task) life(leave func(struct{}) bool) {
	defer t.lastWords()
	t.leave = leave
	ts := t.tasks
	for {
		if t.job != nil {
			t.do()
		}
		for ts.player == t && !ts.over {
			ts.over = !ts.step()
		}
		ts.idle = append(ts.idle, t)
		if !leave(struct{}{}) {
			return
		}
	}
}

// do does the task's job.
func (t *task) do() {
	t.job.happen()
	for i, l := range t.letters {
		l.drop()
		t.letters[i] = nil
	}
	t.letters = t.letters[:0]
	t.job, t.process, t.hearing = nil, nil, nil
}

// lastWords ends an unwound task quietly, and notes where any other panic came from: the stack is
// lost when the panic crosses from the coroutine to the world.
func (t *task) lastWords() {
	p := recover()
	if p == nil || p == (unwound{}) {
		return
	}
	if t.tasks.panicAt == "" { // else it has come from another task
		t.tasks.panicAt = panicSite()
	}
	panic(p)
}

// panicSite names the function that panicked. It must be called while the panic is being recovered.
func panicSite() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	panicking := false
	for {
		f, more := frames.Next()
		if panicking && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf("%s, line %d", f.Function, f.Line)
		}
		panicking = panicking || f.Function == "runtime.gopanic"
		if !more {
			return "unknown"
		}
	}
}
