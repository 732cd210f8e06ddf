package servers

import (
	"penstock/bench/contest"
)

// Rows are all of them.
var Rows = []Row{
	{
		Name: "unary", Title: "One check a call, at the owner of the key",
		contestants: []contestant{
			{name: Base, start: ownCheck},
			{name: oneThreadName, start: withOneThread(ownCheck)},
			{name: emptyName, start: empty},
		},
		points: closed(1, 64, 256),
		Aims: []contest.Aim{
			faster("unary check, owner-local, 1 caller", "1 × 1", 0.95, emptyName),
			faster("… 64 callers", "64 × 1", 1.3, emptyName),
			faster("… 256 callers", "256 × 1", 1.3, emptyName),
			by(oneThreadName, faster("the same of a node with one thread, 1 caller", "1 × 1", 0.95,
				emptyName)),
			by(oneThreadName, faster("… 64 callers", "64 × 1", 1.3, emptyName)),
			by(oneThreadName, faster("… 256 callers", "256 × 1", 1.3, emptyName)),
		},
	},
	{
		Name: "client", Title: "Takes of penstock's Go client, which share a stream",
		contestants: []contestant{{name: Base, start: ownTakes}, {name: emptyName, start: empty}},
		points:      closed(1, 64, 256),
		Aims: []contest.Aim{
			faster("Go client, concurrent takes, 64 callers", "64 × 1", 8, emptyName),
			faster("… 256 callers", "256 × 1", 16, emptyName),
		},
	},
	{
		Name: "gubernator", Title: "Gubernator's API, one node",
		contestants: []contestant{
			{name: Base, start: ownDoor(1)},
			{name: oneThreadName, start: withOneThread(ownDoor(1)), points: closed(1, 64, 256)},
			{name: clientName, start: ownBatches(1), points: batches(false)},
			{name: gubernatorName, builds: gubernatorSource, start: theirs(1)},
		},
		points: append(closed(1, 64, 256), batches(false)...),
		Aims: []contest.Aim{
			faster("unary check through the Gubernator door, 1 caller", "1 × 1", 2.4,
				gubernatorName),
			faster("… 64 callers", "64 × 1", 2.4, gubernatorName),
			faster("… 256 callers", "256 × 1", 2.4, gubernatorName),
			by(oneThreadName, faster("the same of a node with one thread, 1 caller", "1 × 1", 2.4,
				gubernatorName)),
			by(oneThreadName, faster("… 64 callers", "64 × 1", 2.4, gubernatorName)),
			by(oneThreadName, faster("… 256 callers", "256 × 1", 2.4, gubernatorName)),
			by(clientName, faster("batch of 100, owner-local, each by its own Go client",
				"16 × 100", 12, gubernatorName)),
			by(clientName, faster("batch of 1000", "16 × 1000", 25, gubernatorName)),
			saves("batch of 100, both by Gubernator's client, CPU of the server", "16 × 100", 25,
				gubernatorName),
			saves("batch of 1000", "16 × 1000", 40, gubernatorName),
		},
	},
	{
		Name: "three", Title: "Gubernator's API, three nodes, one of them asked",
		contestants: []contestant{
			{name: Base, start: ownDoor(3)},
			{name: oneThreadName, start: withOneThread(ownDoor(3)), points: closed(1, 64)},
			{name: clientName, start: ownBatches(3), points: batches(true)},
			{name: gubernatorName, builds: gubernatorSource, start: theirs(3)},
			{name: emptyName, start: empty, points: closed(1, 64)},
		},
		points: append(closed(1, 64), batches(true)...),
		Aims: []contest.Aim{
			faster("unary check, forwarded, 64 callers", "64 × 1", 3.5, gubernatorName),
			{
				Work:    "lone forwarded check, p50",
				Job:     contest.Job{Contestant: Base, Point: "1 × 1"},
				Against: jobs("1 × 1", emptyName), Figure: median, Better: contest.Less, Want: 1.6,
			},
			by(oneThreadName, faster("unary check, forwarded, of nodes with one thread, 64 callers",
				"64 × 1", 3.5, gubernatorName)),
			by(oneThreadName, contest.Aim{
				Work: "lone forwarded check of theirs, p50",
				Job:  contest.Job{Point: "1 × 1"}, Against: jobs("1 × 1", emptyName),
				Figure: median,
				Better: contest.Less, Want: 1.6,
			}),
			by(clientName, faster("batch of 100, keys over 3 nodes, each by its own Go client",
				"16 × 100 any", 20, gubernatorName)),
			by(clientName, faster("batch of 1000", "16 × 1000 any", 40, gubernatorName)),
			faster("batch of 100, both by Gubernator's client", "16 × 100 any", 20, gubernatorName),
			faster("batch of 1000", "16 × 1000 any", 40, gubernatorName),
		},
	},
	{
		Name:  "redis",
		Title: "The Redis protocol, 50 connections, with pipelines of 50 and without",
		contestants: []contestant{{
			name: Base, installed: []string{"redis-benchmark"},
			start: ownRedis,
		}, {
			name: redisName, installed: []string{"redis-server"},
			start: redisServer,
		}},
		points: []Point{
			{Name: "50 × 1", Callers: 50, Items: 1, Tool: true},
			{Name: "50 × 50", Callers: 50, Items: 50, Tool: true},
			{Name: "50 × 1, go-redis", Callers: 50, Items: 1},
			{Name: "50 × 50, go-redis", Callers: 50, Items: 50},
		},
		Aims: []contest.Aim{
			faster("Redis protocol, 50 connections, pipeline 50", "50 × 50", 15, redisName),
			faster("… pipeline 1", "50 × 1", 1.5, redisName),
		},
	},
	{
		Name: "envoy", Title: "Envoy's rate limit service, one descriptor a request",
		contestants: []contestant{
			{name: Base, start: ownEnvoyDoor},
			{
				name: ratelimitName, builds: ratelimitSource, installed: []string{"redis-server"},
				start: ratelimitServer,
			},
			{name: emptyName, start: empty},
		},
		points: closed(1, 64),
		Aims: []contest.Aim{
			faster("Envoy rate limit service, 64 callers", "64 × 1", 4, ratelimitName),
			{
				Work: "… one caller, p50", Job: contest.Job{Contestant: Base, Point: "1 × 1"},
				Against: jobs("1 × 1", ratelimitName), Figure: median, Better: contest.Less,
				Want: 0.55,
			},
		},
	},
	leased, sidecar, inProcess, idle, ready, replication, Join(1_000_000), observe, rate,
	callers, batch, limitsRow, nodesRow,
}

// closed are points of so many callers. Each asks for one decision again and again.
func closed(callers ...int) (points []Point) {
	for _, n := range callers {
		points = append(points, Point{Callers: n, Items: 1})
	}
	return points
}

// batches are points of 16 callers that ask for many decisions in a call; of three nodes: for any
// key.
func batches(anyKey bool) []Point {
	return []Point{{Callers: 16, Items: 100, Any: anyKey}, {Callers: 16, Items: 1000, Any: anyKey}}
}

func jobs(point string, contestants ...string) (all []contest.Job) {
	for _, c := range contestants {
		all = append(all, contest.Job{Contestant: c, Point: point})
	}
	return all
}

// faster is the aim of so many times the decisions a second of rivals.
func faster(work, point string, want float64, rivals ...string) contest.Aim {
	return contest.Aim{
		Work: work, Job: contest.Job{Contestant: Base, Point: point},
		Against: jobs(point, rivals...), Figure: speed, Better: contest.More, Want: want,
	}
}

// saves is the aim of so many times less CPU of the servers than rivals use.
func saves(work, point string, want float64, rivals ...string) contest.Aim {
	a := faster(work, point, want, rivals...)
	a.Figure, a.Saves = serverCPU, true
	return a
}

// by is the aim for another contestant than Base.
func by(name string, a contest.Aim) contest.Aim {
	a.Job.Contestant = name
	return a
}
