package main

import (
	"time"

	"penstock/bench/history/judge"
)

// An agent owns nothing, so nothing is forgotten with it, and all others answer as if nothing were.

// oneAgent draws one that runs.
func (r *run) oneAgent(f *judge.Fault) []*node {
	live := r.cluster.among(r.cluster.agents, []state{up})
	n := live[r.dice.IntN(len(live))]
	f.Nodes, f.Only = []string{n.name}, true
	return []*node{n}
}

// killAgent ends one by kill -9.
func (r *run) killAgent(f *judge.Fault) error {
	err := r.killWithin(f, r.oneAgent(f), 0)
	f.Forgets, f.Again = false, 0
	return err
}

// stopAgent suspends one.
func (r *run) stopAgent(f *judge.Fault) error {
	err := r.suspend(f, r.oneAgent(f))
	f.Forgets, f.Again = false, 0
	return err
}

// cutAgent parts one from all members.
func (r *run) cutAgent(f *judge.Fault) error {
	f.Marks, f.Cut, f.After, f.Heal = true, true, notice, 10*time.Second
	agent := r.oneAgent(f)
	var members []string
	for _, n := range r.cluster.in(up) {
		members = append(members, r.cluster.net.address(n.index))
	}
	if err := r.cluster.net.cut(agent[0].name, members); err != nil {
		return err
	}
	f.Struck = r.recorder.now()
	r.rest(2500, 7000)
	return r.heal(f, agent)
}
