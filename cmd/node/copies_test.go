package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// fiveOf starts five nodes with these flags; zones names one for each, a letter.
func fiveOf(t *testing.T, zones string, flags ...string) (nodes []*process) {
	t.Helper()
	limits := write(t, testLimits)
	for i := range 5 {
		words := append([]string{"--limits", limits}, flags...)
		if zones != "" {
			words = append(words, "--zone", zones[i:i+1])
		}
		if i > 0 {
			words = append(words, "--join", nodes[0].gossip)
		}
		nodes = append(nodes, serveProcess(t, fmt.Sprintf("n%d", i+1), words...))
	}
	eventually(t, "all five agree", func() error { return oneCluster(nodes...) })
	return nodes
}

// copiesStatusOf is what a node says of its copies.
type copiesStatusOf struct {
	Heirs, Held, Kept, Unreplicated, Underreplicated int
	Lag                                              int `json:"lag_ms"`
}

func copiesOf(p *process) (c copiesStatusOf, err error) {
	_, body, err := p.call("GET", "/v1/status")
	if err != nil {
		return c, err
	}
	var s struct{ Copies copiesStatusOf }
	err = json.Unmarshal([]byte(body), &s)
	return s.Copies, err
}

// replicated is nil if all that nodes hold has as many copies as it should.
func replicated(heirs int, nodes ...*process) error {
	for _, p := range nodes {
		c, err := copiesOf(p)
		if err != nil || c.Heirs != heirs || c.Held == 0 || c.Underreplicated != 0 || heirs > 0 &&
			(c.Unreplicated != 0 || c.Kept == 0) {
			return fmt.Errorf("%s: %+v, %v", p.name, c, err)
		}
	}
	return nil
}

// charged takes 7 of each key of those that nodes own.
func charged(t *testing.T, nodes []*process) (keys []string) {
	t.Helper()
	for i := range nodes {
		keys = append(keys, keysOwnedBy(t, nodes[0], 5, fmt.Sprintf("n%d", i+1), 40)...)
	}
	for i, key := range keys {
		if a, err := checkAt(nodes[i%5], "big", key+"&cost=7"); err != nil || a.Degraded {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	time.Sleep(time.Second)
	return keys
}

// Promise: with --copies 2 an owner and its heir are killed at once, and no key has lost its
// counters. A member that was started with another value goes by that of the cluster, and says so.
func TestTwoCopiesOutliveTwoNodes(t *testing.T) {
	t.Parallel()
	nodes := fiveOf(t, "", "--copies", "2")
	eventually(t, "two heirs have copies of all", func() error { return replicated(2, nodes...) })
	keys := charged(t, nodes)
	nodes[3].cmd.Process.Kill()
	nodes[4].cmd.Process.Kill()
	eventually(t, "three are left", func() error { return oneCluster(nodes[:3]...) })
	eventually(t, "200 keys have all their counters",
		func() error { return whole(9993, keys, nodes[:3]...) })
	eventually(t, "two heirs have copies again",
		func() error { return replicated(2, nodes[:3]...) })

	late := serveProcess(t, "n6", "--join", nodes[0].gossip, "--copies", "0")
	eventually(t, "the newcomer goes by two", func() error { return replicated(2, late) })
	eventually(t, "it says so", func() error {
		if said := late.log(); !strings.Contains(said, "goes by another --copies") {
			return fmt.Errorf("it says %s", said)
		}
		return nil
	})
}

// Promise: with zones a whole zone is killed at once, two of five nodes, and no key has lost its
// counters, though there is one copy of each.
func TestZoneIsKilled(t *testing.T) {
	t.Parallel()
	nodes := fiveOf(t, "abcdd")
	eventually(t, "copies are whole", func() error { return replicated(1, nodes...) })
	_, body, err := nodes[0].call("GET", "/v1/members")
	if err != nil || strings.Count(body, `"zone":"d"`) != 2 {
		t.Errorf("members say %s, %v", body, err)
	}
	keys := charged(t, nodes)
	nodes[3].cmd.Process.Kill()
	nodes[4].cmd.Process.Kill()
	eventually(t, "three are left", func() error { return oneCluster(nodes[:3]...) })
	eventually(t, "200 keys have all their counters",
		func() error { return whole(9993, keys, nodes[:3]...) })
}

// Promise: with --copies 0 a crash forgets, and each key that may be concerned says so.
func TestNoCopies(t *testing.T) {
	t.Parallel()
	nodes := fiveOf(t, "", "--copies", "0")
	keys := charged(t, nodes)
	if err := replicated(0, nodes...); err != nil {
		t.Error(err)
	}
	if c, err := copiesOf(nodes[0]); err != nil || c.Unreplicated != c.Held || c.Kept != 0 {
		t.Errorf("%+v, %v; all is unreplicated", c, err)
	}
	nodes[4].cmd.Process.Kill()
	eventually(t, "four are left", func() error { return oneCluster(nodes[:4]...) })
	eventually(t, "40 keys are forgotten, and say so", func() error {
		forgotten := 0
		for _, key := range keys {
			a, err := checkAt(nodes[0], "big", key+"&cost=0")
			if err != nil || a.Degraded != (a.Remaining == 10000) || a.Degraded &&
				a.Bound != 10000 {
				return fmt.Errorf("%s: %+v, %v", key, a, err)
			}
			if a.Degraded {
				forgotten++
			}
		}
		if forgotten != 40 {
			return fmt.Errorf("%d are", forgotten)
		}
		return nil
	})
}
