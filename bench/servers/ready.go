package servers

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"penstock/bench/contest"
)

const (
	readyIn     = "ready after"
	joiningName = "penstock, joining three"
)

// ready is the time from the start of a process until the node answers that it is ready.
var ready = Row{
	Name: "ready", Title: "From the start of a process until the node is ready",
	contestants: []contestant{
		{name: Base, start: startAlone, fresh: true},
		{name: joiningName, start: startBesideThree, fresh: true},
	},
	points: []Point{{Name: "start"}},
	measure: func(r *running, _ Point, _ time.Duration, _ io.Writer) (map[string]float64, error) {
		return map[string]float64{readyIn: r.readyIn.Seconds()}, nil
	},
	Tables: []contest.Table{{
		Title: "Seconds until /readyz says yes", Short: "ready, s",
		Figure: readyIn, Digits: 3, Better: contest.Less,
	}},
	Aims: []contest.Aim{
		readyAim("start of a node until it is ready, alone", Base, 0.15),
		readyAim("… joining three", joiningName, 0.6),
	},
}

func readyAim(work, contestant string, want float64) contest.Aim {
	return contest.Aim{
		Work: work, Job: contest.Job{Contestant: contestant, Point: "start"},
		Figure: readyIn, Better: contest.Less, Want: want, Unit: "s",
	}
}

func startAlone(p *Programs) (*running, error) {
	r := &running{}
	return r, r.startReady(p, "alone", "--gossip", "off", "--peer", "off")
}

// startBesideThree starts a node that joins three others, which know each other already.
func startBesideThree(p *Programs) (*running, error) {
	seeds, err := freePorts("127.0.0.1", 8)
	if err != nil {
		return &running{}, err
	}
	r := &running{}
	for i := range 4 {
		name, gossip, peer := fmt.Sprintf("n%d", i+1), seeds[2*i], seeds[2*i+1]
		args := []string{"--gossip", gossip, "--peer", peer}
		if i > 0 {
			args = append(args, "--join", seeds[0])
		}
		if err := r.startReady(p, name, args...); err != nil {
			return r, err
		}
	}
	return r, nil
}

// startReady starts one more node, and notes how long it took until that was ready.
func (r *running) startReady(p *Programs, name string, more ...string) error {
	addrs, err := freePorts("127.0.0.1", 1)
	if err != nil {
		return err
	}
	began := time.Now()
	args := []string{
		"serve", "--name", name, "--http", addrs[0], "--grpc", "off", "--redis", "off",
		"--limits", "limits.yaml",
	}
	s, err := p.start("penstock", nil, append(args, more...)...)
	if err != nil {
		return err
	}
	r.servers = append(r.servers, s)
	for range 2000 {
		answer, err := http.Get("http://" + addrs[0] + "/readyz")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				r.readyIn = time.Since(began)
				return nil
			}
		}
		select {
		case <-s.over:
			return s.fault("ended")
		case <-time.After(2 * time.Millisecond):
		}
	}
	return s.fault("is not ready")
}
