package servers

import (
	"path/filepath"

	"penstock/bench/contest"
	"penstock/rpc/client"
)

const (
	hotName  = "penstock, leased"
	leaseKey = "account:hot"
)

// sidecar is a program that asks the agent beside it by penstock's Go client, over a Unix socket.
// The agent forwards each check to the member that holds the key, or decides on a leased key by
// itself. The rival is a service that does nothing, over TCP.
var sidecar = Row{
	Name: "sidecar", Title: "A program asks its agent over a Unix socket",
	contestants: []contestant{
		{name: Base, start: askAgent("big")},
		{name: hotName, start: askAgent("lent")},
		{name: emptyName, start: empty},
	},
	points: []Point{
		{Callers: 1, Items: 1, Key: leaseKey},
		{Callers: 64, Items: 1, Key: leaseKey},
	},
	Aims: []contest.Aim{
		by(hotName, faster("a program asks its agent for a leased key, 1 caller", "1 × 1", 1.5,
			emptyName)),
		by(hotName, faster("… 64 callers", "64 × 1", 8, emptyName)),
		sidecarLate("… p99, 1 caller", "1 × 1"),
		sidecarLate("… p99, 64 callers", "64 × 1"),
	},
}

func sidecarLate(work, point string) contest.Aim {
	return contest.Aim{
		Work: work, Job: contest.Job{Contestant: hotName, Point: point},
		Against: jobs(point, emptyName),
		Figure:  p99, Better: contest.Less, Want: 0.7,
	}
}

// askAgent starts a member and an agent, and asks the agent.
func askAgent(limit string) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r := &running{}
		addrs, err := freePorts("127.0.0.1", 5)
		if err != nil {
			return r, err
		}
		socket := "unix://" + filepath.Join(p.Dir, limit+".sock")
		for _, node := range [][]string{
			{"--name", "member", "--gossip", addrs[0], "--peer", addrs[1], "--grpc", addrs[2]},
			{
				"--name", "agent", "--role", "agent", "--gossip", addrs[3], "--peer", addrs[4],
				"--grpc", socket, "--join", addrs[0],
			},
		} {
			args := append([]string{
				"serve", "--http", "off", "--redis", "off", "--limits",
				"limits.yaml",
			}, node...)
			s, err := p.start("penstock", nil, args...)
			if err != nil {
				return r, err
			}
			r.servers = append(r.servers, s)
		}
		if err := r.servers[0].awaitListener(addrs[2]); err != nil {
			return r, err
		}
		return r, r.askTakes([]string{socket}, limit, client.Config{})
	}
}
