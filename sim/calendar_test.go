package sim

import (
	"slices"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Windows of the naive calendar, worked out by hand.
func TestCalendarWindow(t *testing.T) {
	for _, c := range []struct {
		unit            limiter.Calendar
		zone            string
		now, start, end string // UTC
	}{
		{
			limiter.Minutes, "Asia/Kathmandu", "2023-02-28 23:59:59", "2023-02-28 23:59:00",
			"2023-03-01 00:00:00",
		},
		// 5:45 ahead
		{
			limiter.Hours, "Asia/Kathmandu", "2023-01-01 12:20:00", "2023-01-01 12:15:00",
			"2023-01-01 13:15:00",
		},
		{
			limiter.Days, "Asia/Kathmandu", "2023-01-01 18:15:00", "2023-01-01 18:15:00",
			"2023-01-02 18:15:00",
		},
		// Monday to Monday
		{limiter.Weeks, "UTC", "2023-11-19 23:00:00", "2023-11-13 00:00:00", "2023-11-20 00:00:00"},
		{
			limiter.Months, "UTC", "2024-02-29 12:00:00", "2024-02-01 00:00:00",
			"2024-03-01 00:00:00",
		},
		{
			limiter.Years, "Europe/Berlin", "2022-12-31 23:00:00", "2022-12-31 23:00:00",
			"2023-12-31 23:00:00",
		},
		// Berlin: 23 hours on 26 March, 25 on 29 October, and the hour from two to three twice.
		{
			limiter.Days, "Europe/Berlin", "2023-03-26 12:00:00", "2023-03-25 23:00:00",
			"2023-03-26 22:00:00",
		},
		{
			limiter.Days, "Europe/Berlin", "2023-10-29 12:00:00", "2023-10-28 22:00:00",
			"2023-10-29 23:00:00",
		},
		{
			limiter.Hours, "Europe/Berlin", "2023-10-29 00:30:00", "2023-10-29 00:00:00",
			"2023-10-29 01:00:00",
		},
		{
			limiter.Hours, "Europe/Berlin", "2023-10-29 01:30:00", "2023-10-29 01:00:00",
			"2023-10-29 02:00:00",
		},
		// Lord Howe: back by half an hour, from two to half past one.
		{
			limiter.Hours, "Australia/Lord_Howe", "2023-04-01 15:10:00", "2023-04-01 15:00:00",
			"2023-04-01 15:30:00",
		},
		// Cairo: at midnight it is one o'clock. Havana: at one o'clock it is midnight again.
		{
			limiter.Days, "Africa/Cairo", "2023-04-27 22:00:00", "2023-04-27 22:00:00",
			"2023-04-28 21:00:00",
		},
		{
			limiter.Days, "America/Havana", "2023-11-05 05:30:00", "2023-11-05 04:00:00",
			"2023-11-06 05:00:00",
		},
		// St. John's: at one minute past midnight it was one minute past eleven of the day before.
		{
			limiter.Days, "America/St_Johns", "2010-11-07 02:31:00", "2010-11-07 02:30:00",
			"2010-11-08 03:30:00",
		},
		{
			limiter.Days, "America/St_Johns", "2010-11-07 02:29:59", "2010-11-06 02:30:00",
			"2010-11-07 02:30:00",
		},
		// Apia had no 30 December 2011.
		{
			limiter.Days, "Pacific/Apia", "2011-12-30 09:59:59", "2011-12-29 10:00:00",
			"2011-12-30 10:00:00",
		},
		{
			limiter.Days, "Pacific/Apia", "2011-12-30 10:00:00", "2011-12-30 10:00:00",
			"2011-12-31 10:00:00",
		},
	} {
		at := func(text string) limiter.Instant {
			x, err := time.Parse(time.DateTime, text)
			if err != nil {
				t.Fatal(err)
			}
			return limiter.Instant(x.UnixNano())
		}
		start, end := calendarWindow(&limiter.Spec{Calendar: c.unit, TimeZone: c.zone}, at(c.now))
		utc := func(x limiter.Instant) string {
			return time.Unix(0, int64(x)).UTC().Format(time.DateTime)
		}
		if start != at(c.start) || end != at(c.end) {
			t.Errorf("%v of %s in %s: %s to %s, want %s to %s", c.unit, c.now, c.zone, utc(start),
				utc(end), c.start, c.end)
		}
	}
}

// calendarFaults show in worlds of calendars. Limits are as the world has them, but for one thing.
func calendarFaults() []planted {
	otherwise := func(change func(*limiter.Spec)) func(*process) {
		return func(p *process) {
			limits := make(cluster.Limits)
			for name, l := range p.machine.world.limits {
				s := l.Spec
				change(&s)
				limits[name] = mustLimit(s)
			}
			p.node.SetLimits(limits)
		}
	}
	return []planted{
		{"days are those of another time zone", []promise{exact}, otherwise(func(s *limiter.Spec) {
			if s.Calendar != 0 {
				s.TimeZone = "Asia/Tokyo"
			}
		})},
		{
			"a day has 24 hours, a month 31 days and a year 366",
			[]promise{exact},
			otherwise(func(s *limiter.Spec) {
				s.Calendar, s.TimeZone = 0, ""
			}),
		},
		{
			"a node that is cut off admits from its share where its limit denies",
			[]promise{marked},
			otherwise(func(s *limiter.Spec) {
				if s.OnPartition == limiter.PartitionDeny {
					s.OnPartition = limiter.PartitionProportional
				}
			}),
		},
		{
			"a node that is cut off admits what the whole cluster may",
			[]promise{marked},
			otherwise(func(s *limiter.Spec) {
				if s.OnPartition == limiter.PartitionProportional {
					s.OnPartition = limiter.PartitionOpen
				}
			}),
		},
		{
			"a node that is cut off goes by on_error",
			[]promise{marked},
			otherwise(func(s *limiter.Spec) {
				s.OnPartition = [...]limiter.OnPartition{
					limiter.ErrorLocal: limiter.PartitionProportional,
					limiter.ErrorAllow: limiter.PartitionOpen,
					limiter.ErrorDeny:  limiter.PartitionDeny,
				}[s.OnError]
			}),
		},
	}
}

// lateFaults are those of a node that does not stop to decide when it is cut off. They show where
// some are cut off from most others, which is what happens in worlds of calendars.
func lateFaults() []planted {
	// Voters that do not answer acknowledge renewals, for so long since they last did.
	imagined := func(lasts time.Duration) func(*process) {
		return func(p *process) {
			answered := make(map[ownership.Boot]time.Duration)
			p.hears = func(calls []cluster.Call) {
				now := p.machine.world.now
				for i := range calls {
					c := &calls[i]
					w := c.Ask.Words
					switch {
					case w == nil:
					case c.Err == nil:
						answered[w.To] = now
					case answered[w.To] != 0 && now < answered[w.To]+lasts:
						c.Err, c.Answer = nil, &cluster.Answer{Words: acknowledged(c, p.now())}
					}
				}
			}
		}
	}
	return []planted{
		{"an owner goes on deciding without contact", []promise{owned}, imagined(time.Hour)},
		{
			"what was admitted without the owner is charged tenfold",
			[]promise{useful, exact},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				for i := range a.Items {
					if a.Items[i].Report {
						a.Items[i].Cost *= 10
					}
				}
				return d.Deliver(a)
			}),
		},
		{
			"an owner without contact goes on for a second too long",
			[]promise{owned, marked},
			imagined(1200 * time.Millisecond),
		},
	}
}

// acknowledged is what a voter would answer to the renewals in c.
func acknowledged(c *cluster.Call, now limiter.Instant) *cluster.Words {
	w := c.Ask.Words
	answer := &cluster.Words{
		From: w.To, To: w.From, ID: c.To.ID, Addr: c.To.PeerAddr,
		Process: c.To.Boot,
	}
	for _, m := range w.Said {
		if renew, is := m.(ownership.Renew); is {
			ack := ownership.RenewAck{
				Epoch: renew.Epoch, Sent: renew.Sent,
				Clock: ownership.Instant(now),
			}
			answer.Said = append(answer.Said, ack)
		}
	}
	return answer
}

// A seed from CalendarSeeds on is a world of calendars, one below is not.
func TestSeedsOfCalendars(t *testing.T) {
	for seed, calendars := range map[uint64]bool{
		1: false, CalendarSeeds - 1: false,
		CalendarSeeds: true, CalendarSeeds + 7: true,
	} {
		has := slices.ContainsFunc(draw(seed).limits, func(l rule) bool { return l.Calendar != 0 })
		if has != calendars {
			t.Errorf("seed %d: %t that it has windows of a calendar", seed, has)
		}
		if first, again := Run(seed), Run(seed); !first.OK() || first.TraceHash != again.TraceHash {
			t.Errorf("seed %d: %+v; trace %s, then %s", seed, first.Failure, first.TraceHash,
				again.TraceHash)
		}
	}
}

// What a calendar's limit means in a scenario is what it means in a node, and a smaller world says
// it again.
func TestScenarioWithACalendar(t *testing.T) {
	s, err := ReadScenario("day.yaml", []byte(`
nodes: 3
duration: 10s
start: "2023-10-29T22:59:55Z"
limits:
  - {name: day, algorithm: fixed_window, limit: 7, per: day, time_zone: Europe/Berlin,
     on_partition: deny}
traffic:
  - {limit: day, key: all, rate: 20/s}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := s.Run()
	if sum := r.Limits[0].Sum; !r.OK() || sum.Admitted != 14 {
		t.Errorf("%d admitted over midnight, of 7 a day; %+v", sum.Admitted, r.Failure)
	}
}
