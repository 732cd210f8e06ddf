package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/rpc/clock"
	"penstock/rpc/peer"
)

// forge has a node of any name and boot send moves to the peer door of another one, and returns the
// last error.
func forge(to cluster.Member, id string, boot uint64, moves ...*cluster.Move) error {
	clock := clock.New()
	peers := peer.NewLines(peer.LinesConfig{ID: id, Boot: boot, Cluster: "penstock", Clock: clock})
	defer peers.Close()
	var err error
	for _, m := range moves {
		deadline := clock.Now().Add(5 * time.Second)
		calls := []cluster.Call{
			{To: to, Deadline: deadline, Ask: &cluster.Ask{Hop: 1, Deadline: deadline, Move: m}},
		}
		peers.Call(calls)
		err = calls[0].Err
	}
	return err
}

// bootAt is the boot of the node at an address: a caller that expects another one is told.
func bootAt(t *testing.T, id, addr string) (boot uint64) {
	t.Helper()
	err := forge(
		cluster.Member{ID: id, Boot: 1, PeerAddr: addr},
		"evil",
		2,
		&cluster.Move{From: 2, To: 1, ID: "evil"},
	)
	if err != nil {
		_, text, _ := strings.Cut(err.Error(), id+", boot ")
		_, err = fmt.Sscanf(text, "%x", &boot)
	}
	if err != nil || boot == 0 {
		t.Fatalf("the boot of %s: %v", id, err)
	}
	return boot
}

// Promise: hostile input costs nobody the takeover of a node that dies. Forged messages to real
// processes, from strangers and in the name of a member, and then kill -9 of one of three.
func TestForgedFramesDoNotEndTakeovers(t *testing.T) {
	t.Parallel()
	limits := write(t, testLimits)
	addrs := freeAddresses(t, 3)
	var nodes []*process
	for i := range 3 {
		args := []string{"--limits", limits, "--peer", addrs[i]}
		if i > 0 {
			args = append(args, "--join", nodes[0].gossip)
		}
		nodes = append(nodes, serveProcess(t, fmt.Sprintf("n%d", i+1), args...))
	}
	eventually(t, "all three see each other", func() error { return agreed(nodes...) })
	var boots [3]uint64
	for i, addr := range addrs {
		boots[i] = bootAt(t, nodes[i].name, addr)
	}
	all := make([]uint16, 4093)
	for i := range all {
		all[i] = uint16(i)
	}
	for i, addr := range addrs {
		to := cluster.Member{ID: nodes[i].name, Boot: boots[i], PeerAddr: addr}
		for k := range uint64(10) {
			for id, boot := range map[string]uint64{
				"evil": 1000 + k, "n9": 2000 + k,
				"n2": boots[1], "n3": boots[2],
			} {
				_ = forge(
					to,
					id,
					boot,
					&cluster.Move{From: boot, To: boots[i], ID: id, Term: math.MaxUint64},
					&cluster.Move{
						From: boot, To: boots[i], ID: id, Term: math.MaxUint64,
						Claiming: cluster.Claiming{Claim: all},
					},
					&cluster.Move{
						From: k, To: boots[i], ID: id, Term: math.MaxUint64,
						Claiming: cluster.Claiming{Claim: all},
					},
				)
			}
		}
	}
	keys := keysOwnedBy(t, nodes[0], 3, "n3", 10)
	nodes[2].cmd.Process.Kill()
	<-nodes[2].exited
	for _, key := range keys {
		eventually(t, "a key of n3 has a new owner", func() error {
			for _, p := range nodes[:2] {
				if a, err := checkAt(p, "big", key); err != nil || a.Degraded {
					return fmt.Errorf("%+v, %v", a, err)
				}
			}
			return nil
		})
	}
}
