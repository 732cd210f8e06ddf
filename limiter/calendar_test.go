package limiter

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func local(t *testing.T, text, zone string) Instant {
	t.Helper()
	place, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation("2006-01-02 15:04:05", text, place)
	if err != nil {
		t.Fatal(err)
	}
	return Instant(at.UnixNano())
}

// TestCalendar: where windows begin and end, also where clocks change.
func TestCalendar(t *testing.T) {
	for _, c := range []struct {
		unit       Calendar
		zone       string
		now        string // UTC
		start, end string
	}{
		{Minutes, "UTC", "2026-02-28 23:59:59", "2026-02-28 23:59:00", "2026-03-01 00:00:00"},
		// 5:45 ahead
		{
			Hours, "Asia/Kathmandu", "2026-01-01 12:20:00", "2026-01-01 12:15:00",
			"2026-01-01 13:15:00",
		},
		{Days, "UTC", "2026-01-01 00:00:00", "2026-01-01 00:00:00", "2026-01-02 00:00:00"},
		// Monday to Monday
		{Weeks, "UTC", "2026-11-21 13:00:00", "2026-11-16 00:00:00", "2026-11-23 00:00:00"},
		{Weeks, "UTC", "1970-01-01 00:00:00", "1969-12-29 00:00:00", "1970-01-05 00:00:00"},
		{Months, "UTC", "2024-02-29 12:00:00", "2024-02-01 00:00:00", "2024-03-01 00:00:00"},
		{Months, "UTC", "2026-12-31 23:59:59", "2026-12-01 00:00:00", "2027-01-01 00:00:00"},
		{Years, "UTC", "2024-07-01 00:00:00", "2024-01-01 00:00:00", "2025-01-01 00:00:00"},
		{
			Years, "Europe/Berlin", "2025-12-31 23:00:00", "2025-12-31 23:00:00",
			"2026-12-31 23:00:00",
		},

		// Berlin: 23 hours on 29 March, 25 on 25 October; the hour from two to three is not there,
		// or twice.
		{
			Days, "Europe/Berlin", "2026-03-29 12:00:00", "2026-03-28 23:00:00",
			"2026-03-29 22:00:00",
		},
		{
			Days, "Europe/Berlin", "2026-10-25 12:00:00", "2026-10-24 22:00:00",
			"2026-10-25 23:00:00",
		},
		{
			Months, "Europe/Berlin", "2026-03-01 12:00:00", "2026-02-28 23:00:00",
			"2026-03-31 22:00:00",
		},
		{
			Hours, "Europe/Berlin", "2026-03-29 01:00:00", "2026-03-29 01:00:00",
			"2026-03-29 02:00:00",
		},
		{
			Hours, "Europe/Berlin", "2026-10-25 00:30:00", "2026-10-25 00:00:00",
			"2026-10-25 01:00:00",
		},
		{
			Hours, "Europe/Berlin", "2026-10-25 01:30:00", "2026-10-25 01:00:00",
			"2026-10-25 02:00:00",
		},

		// Lord Howe: back by half an hour, from two to half past one. Three windows meet the hour
		// from one to two.
		{
			Hours, "Australia/Lord_Howe", "2026-04-04 14:59:00", "2026-04-04 14:00:00",
			"2026-04-04 15:00:00",
		},
		{
			Hours, "Australia/Lord_Howe", "2026-04-04 15:10:00", "2026-04-04 15:00:00",
			"2026-04-04 15:30:00",
		},
		{
			Hours, "Australia/Lord_Howe", "2026-04-04 15:30:00", "2026-04-04 15:30:00",
			"2026-04-04 16:30:00",
		},

		// Cairo: at midnight it is one o'clock. Havana: at one o'clock it is midnight again.
		{Days, "Africa/Cairo", "2026-04-23 22:00:00", "2026-04-23 22:00:00", "2026-04-24 21:00:00"},
		{
			Days, "America/Havana", "2026-11-01 04:30:00", "2026-11-01 04:00:00",
			"2026-11-02 05:00:00",
		},
		{
			Days, "America/Havana", "2026-11-01 05:30:00", "2026-11-01 04:00:00",
			"2026-11-02 05:00:00",
		},

		// St. John's, until 2011: at one minute past midnight it was one minute past eleven of the
		// day before.
		{
			Days, "America/St_Johns", "2010-11-07 02:30:30", "2010-11-07 02:30:00",
			"2010-11-08 03:30:00",
		},
		{
			Days, "America/St_Johns", "2010-11-07 02:31:00", "2010-11-07 02:30:00",
			"2010-11-08 03:30:00",
		},
		{
			Days, "America/St_Johns", "2010-11-07 02:29:59", "2010-11-06 02:30:00",
			"2010-11-07 02:30:00",
		},

		// Apia had no 30 December 2011, and Kwajalein no 21 August 1993; before that it had 1
		// October 1969 twice.
		{Days, "Pacific/Apia", "2011-12-30 09:59:59", "2011-12-29 10:00:00", "2011-12-30 10:00:00"},
		{Days, "Pacific/Apia", "2011-12-30 10:00:00", "2011-12-30 10:00:00", "2011-12-31 10:00:00"},
		{
			Weeks, "Pacific/Apia", "2011-12-30 10:00:00", "2011-12-26 10:00:00",
			"2012-01-01 10:00:00",
		},
	} {
		z, found := zoneNamed(c.zone)
		if !found {
			t.Fatal(c.zone)
		}
		start, end := z.window(c.unit, int64(local(t, c.now, "UTC")))
		utc := func(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05") }
		if utc(start) != c.start || utc(end) != c.end {
			t.Errorf("%v of %s in %s: %s to %s, want %s to %s", c.unit, c.now, c.zone, utc(start),
				utc(end), c.start, c.end)
		}
	}
}

// number counts the windows of c by what a wall clock shows, in another way than zone does.
func (c Calendar) number(at time.Time) int {
	year, month, date := at.Date()
	days := int(time.Date(year, month, date, 0, 0, 0, 0, time.UTC).Unix() / (24 * 3600))
	switch c {
	case Days:
		return days
	case Weeks:
		return (days + 3*7*100000 + 3) / 7
	case Months:
		return 12*year + int(month)
	}
	return year
}

// TestCalendarOfManyPlaces: windows follow one another without a gap, and each begins when the wall
// clock first shows its name and ends when it first shows a later one.
func TestCalendarOfManyPlaces(t *testing.T) {
	names := []string{
		"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe",
		"Africa/Cairo", "America/Havana", "America/St_Johns",
		"Pacific/Apia", "Pacific/Kwajalein", "Africa/Casablanca", "Asia/Gaza", "America/Sao_Paulo",
		"Antarctica/Troll", "Asia/Tehran",
		"America/Asuncion", "Europe/Dublin", "Africa/Monrovia", "Pacific/Kiritimati", "Asia/Beirut",
		"Etc/GMT+12",
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "zone")
		z, _ := zoneNamed(name)
		place, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		c := Calendar(rapid.IntRange(1, 6).Draw(t, "unit"))
		now := rapid.Int64Range(int64(earliest), int64(latest)).Draw(t, "now")
		if i := rapid.IntRange(0, len(z)-1).Draw(t, "change"); i > 0 &&
			rapid.Bool().Draw(t, "near a change?") {
			now = z[i].from + rapid.OneOf(rapid.Int64Range(-int64(day), int64(day)),
				rapid.Int64Range(-2, 2)).Draw(t, "off it")
		}
		start, end := z.window(c, now)
		if start > now || end <= now {
			t.Fatalf("%v of %d in %s is from %d to %d", c, now, name, start, end)
		}
		if _, e := z.window(c, start-1); e != start {
			t.Fatalf("%v of %d in %s begins at %d, the one before ends at %d", c, now, name, start,
				e)
		}
		if s, _ := z.window(c, end); s != end {
			t.Fatalf("%v of %d in %s ends at %d, the one after begins at %d", c, now, name, end, s)
		}
		at := func(ns int64) time.Time { return time.Unix(0, ns).In(place) }
		if c <= Hours {
			_, ahead := at(now).Zone()
			_, before := at(start - 1).Zone()
			_, after := at(end).Zone()
			full := func(ns int64) bool { return (ns+int64(ahead)*1e9)%int64(c.Per()) == 0 }
			if !full(start) && before == ahead || !full(end) && after == ahead ||
				end-start > int64(c.Per()) {
				t.Fatalf("%v of %d in %s is from %v to %v", c, now, name, at(start), at(end))
			}
			return
		}
		this := c.number(at(start))
		if c.number(at(start-1)) >= this || c.number(at(end)) <= this {
			t.Fatalf("%v of %d in %s is from %v to %v", c, now, name, at(start), at(end))
		}
		for range 5 {
			between := rapid.Int64Range(start, end-1).Draw(t, "between")
			if c.number(at(between)) > this {
				t.Fatalf("%v from %v to %v in %s has %v in it", c, at(start), at(end), name,
					at(between))
			}
		}
	})
}

// TestZoneNames: a name that is none, that is another on each machine, or another name of the same
// file is refused.
func TestZoneNames(t *testing.T) {
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires",
		"Etc/GMT+12", "EST",
	} {
		if _, err := New(
			Spec{Name: "x", Algorithm: FixedWindow, Limit: 1, Calendar: Days, TimeZone: name},
		); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"Local", "Europe/Atlantis", "europe", "Europe", "Europe//Berlin", "./UTC", "../UTC",
		"Europe/../UTC", "/etc/localtime", "/UTC", "UTC/",
		"UTC\x00", "+01:00", fmt.Sprintf("%065d", 0), "\xff",
	} {
		if _, err := New(Spec{
			Name: "x", Algorithm: FixedWindow, Limit: 1, Calendar: Days,
			TimeZone: name,
		}); err == nil || err.(*SpecError).Field != "time_zone" {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestCalendarLimit: a limit per month counts in the month of its place, and goes on in the stored
// one if the clock goes back.
func TestCalendarLimit(t *testing.T) {
	l := mustBe(New(Spec{
		Name: "plan", Algorithm: FixedWindow, Limit: 10, Calendar: Months,
		TimeZone: "America/New_York",
	}))
	table := NewTable(TableConfig{Bytes: 1})
	for _, row := range []struct {
		at    string // in New York
		cost  int64
		left  int64
		reset time.Duration
	}{
		{"2026-03-01 00:00:00", 4, 6, 31*day - time.Hour},
		// since an hour ago it is an hour later
		{"2026-03-08 03:00:00", 3, 3, 24*day - 3*time.Hour},
		{"2026-03-31 23:59:59", 3, 0, time.Second},
		{"2026-04-01 00:00:00", 1, 9, 30 * day},
		{"2026-03-31 23:59:59", 1, 8, 30*day + time.Second},
		{"2026-04-01 00:00:01", -9, 10, 30*day - time.Second},
	} {
		d := table.Take(local(t, row.at, "America/New_York"), l, "k", 1, row.cost)
		if !d.Allowed || d.Remaining != row.left || d.ResetAfter != row.reset {
			t.Errorf("%s: %+v, want %d left for %v", row.at, d, row.left, row.reset)
		}
	}
	if d := table.Take(0, l, "k", 1, 11); d.Allowed || d.RetryAfter != Never {
		t.Errorf("%+v", d)
	}
	if allocs := testing.AllocsPerRun(100, func() { table.Take(5, l, "k", 1, 1) }); allocs != 0 {
		t.Errorf("%v allocations per decision", allocs)
	}
}

// TestWindowsLandWhereTheyWere: a calendar window from a node with a clock that is slightly off is
// the same window here, not the one before.
func TestWindowsLandWhereTheyWere(t *testing.T) {
	l := mustBe(New(Spec{
		Name: "plan", Algorithm: FixedWindow, Limit: 10, Calendar: Days,
		TimeZone: "Europe/Berlin",
	}))
	midnight := local(t, "2026-03-29 00:00:00", "Europe/Berlin")
	now := midnight.Add(10 * time.Second)
	w := make([]int64, l.words())
	var d Decision
	l.decide(w, now, 7, &d)
	b := l.EncodeState(w, now)
	for _, off := range []time.Duration{-5 * time.Second, -1, 0, 1, time.Minute, 20 * time.Hour} {
		got, err := l.DecodeState(b, now.Add(off))
		if l.decide(got, now.Add(off), 0, &d); err != nil || d.Remaining != 3 ||
			got[0] != int64(midnight) {
			// then it is nearer to the next
			if off != 20*time.Hour || got[0] != int64(midnight.Add(23*time.Hour)) {
				t.Errorf("%v off: %v, %+v, %v", off, got, d, err)
			}
		}
	}
}
