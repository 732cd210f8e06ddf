package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"penstock/cluster"
	"penstock/limiter/policy"
	"penstock/rpc/admin"
	"penstock/rpc/audit"
	"penstock/rpc/catalog"
	"penstock/rpc/door"
)

// rival is a network in which other nodes have changed each limit at the same time, and later.
type rival struct{}

func (rival) Tell(context.Context, cluster.Member, []byte) ([]byte, error) {
	return []byte(`{"entries":[{"name":"x","version":"9@n9","base":"none","by":"rival","at_ms":1,` +
		`"limit":{"name":"x","algorithm":"gcra","limit":9,"per":"1s"}}]}`), nil
}

// Promise: a change of limits that has lost a race was in force for a moment, and is recorded with
// that.
func TestLostRacesAreRecorded(t *testing.T) {
	nodes, _, _ := twoNodes(t, login(5), login(5))
	n := nodes[0].node
	put, err := catalog.New(catalog.Config{Node: n, Network: rival{}})
	if err != nil {
		t.Fatal(err)
	}
	x, err := policy.Define([]byte(`{"name":"x","algorithm":"gcra","limit":1,"per":"1s"}`))
	if err != nil {
		t.Fatal(err)
	}
	lines := new(strings.Builder)
	record := door.Recorder{Log: audit.New(lines, slog.New(slog.DiscardHandler))}
	_, lost := admin.NewChange(t.Context(), put, n, record, "").Put(x)
	var e audit.Entry
	if err := json.Unmarshal([]byte(lines.String()), &e); err != nil || lost == nil ||
		e.Action != "put limit" || !strings.Contains(e.Error, "at the same time") {
		t.Errorf("%v is recorded as %q, %v", lost, lines, err)
	}
}
