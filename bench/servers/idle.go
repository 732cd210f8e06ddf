package servers

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"penstock/bench/contest"
)

const (
	idleCPU    = "idle CPU"
	idleMemory = "idle memory"
)

// idle is nodes with all doors open of which nobody asks anything. Figures are those of one node.
var idle = Row{
	Name: "idle", Title: "A node of which nobody asks anything",
	contestants: []contestant{
		{name: Base, start: idleNodes(1)},
		{name: "penstock, one of three", start: idleNodes(3)},
		{name: gubernatorName, builds: gubernatorSource, start: idleGubernators(1)},
		{name: "gubernator, one of three", builds: gubernatorSource, start: idleGubernators(3)},
	},
	points: []Point{{Name: "idle"}},
	times:  12, // five rounds of 500 ms are 30 s
	prepare: func(_ map[string]*running, _ []Point, each time.Duration, _ io.Writer) error {
		time.Sleep(each / 3) // they get to know each other
		return nil
	},
	measure: func(r *running, _ Point, d time.Duration, _ io.Writer) (map[string]float64, error) {
		before, err := r.preciseCPU()
		if err != nil {
			return nil, err
		}
		meter, own, began := contest.NewMeter(), ownCPU(), time.Now()
		time.Sleep(d)
		elapsed := time.Since(began)
		after, err := r.preciseCPU()
		if err != nil {
			return nil, err
		}
		n := float64(len(r.servers))
		figures := map[string]float64{
			idleCPU:    100 * (after - before).Seconds() / elapsed.Seconds() / n,
			idleMemory: r.resident() / (1 << 20) / n,
		}
		if others := meter.Others(after - before + ownCPU() - own); others >= 0 {
			figures[contest.Others] = others
		}
		return figures, nil
	},
	Tables: []contest.Table{
		{
			Title: "Resident memory, MB", Short: "memory, MB", Figure: idleMemory, Digits: 1,
			Better: contest.Less,
		},
		{
			Title: "CPU, % of a core", Short: "CPU, %", Figure: idleCPU, Digits: 2,
			Better: contest.Less,
		},
	},
	Aims: []contest.Aim{
		idleAim("idle node, alone: CPU", Base, idleCPU, 0.3, "%"),
		idleAim("… resident memory", Base, idleMemory, 30, "MB"),
		idleAim("idle node, one of three: CPU", "penstock, one of three", idleCPU, 0.3, "%"),
		idleAim("… resident memory", "penstock, one of three", idleMemory, 30, "MB"),
	},
}

func idleAim(work, contestant, figure string, want float64, unit string) contest.Aim {
	return contest.Aim{
		Work: work, Job: contest.Job{Contestant: contestant, Point: "idle"},
		Figure: figure, Better: contest.Less, Want: want, Unit: unit,
	}
}

func idleNodes(n int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r, _, err := nodes(p, n, "--http", "127.0.0.1:0", "--redis", "127.0.0.1:0")
		return r, err
	}
}

func idleGubernators(n int) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r, _, err := gubernators(p, n)
		return r, err
	}
}

// preciseCPU is cpu in nanoseconds instead of hundredths of a second, of all threads that live:
// what an idle node uses in seconds is a few hundredths.
func (r *running) preciseCPU() (sum time.Duration, err error) {
	for _, s := range r.servers {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.cmd.Process.Pid))
		if err != nil || len(files) == 0 {
			return 0, fmt.Errorf("/proc/PID/task/*/schedstat cannot be read, %v", err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has ended
			}
			ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(ns)
		}
	}
	return sum, nil
}
