package sim

import (
	"fmt"
	"strings"
	"testing"

	"penstock/cluster"
)

// Promise of the judge: with replication: sync a request that is repeated after the crash of the
// node that has answered it is charged once. An heir that takes the copy in, and not the answer
// that came with it, charges the repeat, and that is noticed.
func TestSyncRepeatIsJudged(t *testing.T) {
	var requests strings.Builder
	for i := range 30 {
		const ask = "  - {at: %dms, to: n2 n3+300ms, items: [{limit: paid, key: k%d, id: %d}]}\n"
		fmt.Fprintf(&requests, ask, 1000+i, i, i+1)
	}
	s, err := ReadScenario("sync.yaml", []byte(`
nodes: 3
duration: 4s
seed: 1
links: {delay: 1ms}
limits:
  - {name: paid, algorithm: fixed_window, limit: 5, per: 1m, replication: sync}
traffic:
`+requests.String()+`
faults:
  - {at: 1100ms, crash: n1}
`), noLogs)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Run(); r.Failure != nil {
		t.Errorf("as it is: %+v", r.Failure)
	}
	r := s.run(onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
		if a.Move != nil && a.Move.Sequence == 0 {
			m := *a.Move // the judge sees what was sent
			m.Taken = nil
			a.Move = &m
		}
		return d.Deliver(a)
	}))
	if r.Failure == nil || r.Failure.Promise != promiseWords[once][0] {
		t.Errorf("an heir forgets the answers of copies: %+v", r.Failure)
	}
}
