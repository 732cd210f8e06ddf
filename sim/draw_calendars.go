package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"penstock/limiter"
)

// CalendarSeeds is the first seed of the worlds with calendar windows, one of which is about to
// end. Each limit has an on_partition of its own, and the cluster falls apart for some time. Seeds
// below mean other worlds.
const CalendarSeeds = 3_000_000_000

const (
	calendarPlanStream = 11
	calendarMoreStream = 13 // what else goes wrong in some of these worlds
)

// zones are places that set their clocks in different ways: never, by half an hour, at midnight or
// a minute after it, by two hours, or once by a whole day.
var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe",
	"Africa/Cairo", "America/Havana",
	"America/St_Johns", "Pacific/Apia", "America/Sao_Paulo", "Africa/Casablanca", "Asia/Gaza",
	"Antarctica/Troll", "Etc/GMT+12",
}

// drawCalendars is the world of a seed from CalendarSeeds on.
func drawCalendars(seed uint64) *plan {
	r := stream(seed, calendarPlanStream)
	p := &plan{seed: seed, sky: oneOf(r, calm, calm, lossy, outage, outage, outage)}
	p.machines = drawMachines(r)
	p.weather = drawWeather(r, p.sky)
	p.length = time.Duration(2+r.IntN(40)) * time.Second
	zone := oneOf(r, zones...)
	p.limits = drawCalendarLimits(r, zone)
	p.sweepEvery = 5 * time.Second
	p.traffic = drawTraffic(r, p.length)
	boundary := drawBoundary(r, wallIn(zone)).Add(-time.Duration(r.Int64N(int64(p.length))))
	first := p.machines[0].clock.start
	for i := range p.machines {
		p.machines[i].clock.start += limiter.Instant(boundary.UnixNano()) - first
	}
	if p.sky == outage {
		if r.IntN(4) == 0 {
			p.faults = drawFaults(r, len(p.machines), p.length)
		}
		for range 1 + r.IntN(2) {
			p.faults = append(p.faults, drawPartition(r, len(p.machines), p.length)...)
		}
	}
	p.gossip = drawGossip(r)
	more := stream(seed, calendarMoreStream)
	switch wide := more.IntN(3) == 0; {
	case p.sky != outage || r.IntN(4) == 0:
		drawMembers(r, p)
	case wide: // a node that is cut off may be about to leave, or have just come
		drawMembers(more, p)
	case len(p.machines) > 1: // nodes that are cut off are there before and after
		drawAgents(r, p)
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	p.distances = drawDistances(r, len(p.machines))
	return p
}

// drawCalendarLimits draws 2 to 6 limits, most of them with windows of a calendar, here or
// elsewhere.
func drawCalendarLimits(r *rand.Rand, zone string) []rule {
	rules := drawLimits(r)
	for i := range rules {
		s := &rules[i].Spec
		if r.IntN(3) > 0 {
			*s = limiter.Spec{
				Name: s.Name, Algorithm: limiter.FixedWindow, Limit: s.Limit, OnError: s.OnError,
				DryRun: s.DryRun, OnDeny: s.OnDeny,
				Calendar:      limiter.Minutes + limiter.Calendar(r.IntN(int(limiter.Years))),
				TimeZone:      oneOf(r, zone, zone, zone, oneOf(r, zones...)),
				CountRejected: r.IntN(4) == 0,
			}
		}
		s.OnPartition = oneOf(r, limiter.PartitionProportional, limiter.PartitionDeny,
			limiter.PartitionOpen)
	}
	return rules
}

// drawBoundary draws when a window ends, from 2009 to 2023: what happened then is known for
// certain.
func drawBoundary(r *rand.Rand, at *time.Location) time.Time {
	year, month, day := 2009+r.IntN(15), time.Month(1+r.IntN(12)), 1+r.IntN(28)
	hour, minute := r.IntN(24), r.IntN(60)
	switch r.IntN(7) {
	case 0:
		return time.Date(year, month, day, hour, minute, 0, 0, at)
	case 1:
		return time.Date(year, month, day, hour, 0, 0, 0, at)
	case 2:
		return time.Date(year, month, day, 0, 0, 0, 0, at)
	case 3:
		return time.Date(year, month, 1, 0, 0, 0, 0, at)
	case 4:
		return time.Date(year, 1, 1, 0, 0, 0, 0, at)
	}
	_, set := time.Date(year, month, day, hour, minute, 0, 0, at).ZoneBounds()
	if set.IsZero() || set.Year() > 2023 { // nobody sets that clock
		return time.Date(year, month, day, 0, 0, 0, 0, at)
	}
	return set
}

// drawPartition cuts fewer than half of the machines, or one of two, off from all others for a
// while: mostly for longer than they need to notice.
func drawPartition(r *rand.Rand, machines int, length time.Duration) (faults []fault) {
	if machines == 1 {
		return nil
	}
	at := time.Duration(r.Int64N(int64(length)))
	until := at + time.Second +
		time.Duration(r.Int64N(int64(oneOf(r, 2*time.Second, 15*time.Second))))
	there := make([]bool, machines)
	for _, i := range r.Perm(machines)[:1+r.IntN(max(1, (machines-1)/2))] {
		there[i] = true
	}
	for i := range there {
		for k := range there {
			if there[i] != there[k] {
				faults = append(faults, fault{at: at, kind: cuts, node: i, peer: k},
					fault{at: until, kind: mends, node: i, peer: k})
			}
		}
	}
	return faults
}
