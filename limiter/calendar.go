package limiter

import (
	"math"
	"sort"
	"strings"
	"sync"
	"time"
)

// Calendar is what a window is called on a calendar.
type Calendar uint8

// The windows of a calendar. Zero is none: the window has a length and no name.
const (
	Minutes Calendar = 1 + iota
	Hours
	Days
	Weeks // they begin on Mondays
	Months
	Years
)

// calendarNames are the windows as files, requests and errors call them.
var calendarNames = [...]string{
	Minutes: "minute", Hours: "hour", Days: "day", Weeks: "week",
	Months: "month", Years: "year",
}

// CalendarNamed returns the calendar window that people call name.
func CalendarNamed(name string) (c Calendar, known bool) {
	for i, n := range calendarNames {
		if n == name && n != "" {
			return Calendar(i), true
		}
	}
	return 0, false
}

// String is the name that files, requests and errors use.
func (c Calendar) String() string {
	if int(c) < len(calendarNames) {
		return calendarNames[c]
	}
	return "unknown"
}

const day = 24 * time.Hour

// Per is the longest that such a window lasts where no clock is changed.
func (c Calendar) Per() time.Duration {
	return [...]time.Duration{
		Minutes: time.Minute, Hours: time.Hour, Days: day, Weeks: 7 * day,
		Months: 31 * day, Years: 366 * day,
	}[c]
}

// A zone is the local time of a place, worked out once: from each change of its clocks to the next
// it differs from UTC by one offset. It is shared by all limits that use it, and immutable.
//
// A day begins when the local clock shows it for the first time, and so do a week, a month and a
// year. Where the clock is set back, it goes on: a day has 23 to 25 hours, and no day ever begins
// twice. Minutes and hours follow the clock from change to change, so an hour that is shown twice
// is two windows.
type zone []offset

type offset struct {
	from  int64 // the first instant
	ahead int64 // of UTC, in ns
	shown int64 // the latest that the local clock has shown before, as if it were an instant of UTC
}

// zones are those that were asked for. There are some 600 names.
var zones sync.Map // string → zone

// zoneNamed is the zone of an IANA name. It looks into the database of the system, or of the
// program (time/tzdata).
func zoneNamed(name string) (zone, bool) {
	if z, found := zones.Load(name); found {
		return z.(zone), true
	}
	if !isZoneName(name) {
		return nil, false
	}
	place, err := time.LoadLocation(name)
	if err != nil {
		return nil, false
	}
	z, _ := zones.LoadOrStore(name, zoneOf(place))
	return z.(zone), true
}

func isZone(name string) bool {
	_, found := zoneNamed(name)
	return found
}

// isZoneName keeps away what is another name of the same file, so that there are not more zones
// than places. Local is another place on each machine.
func isZoneName(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.ContainsFunc(part, func(r rune) bool {
			return r != '-' && r != '+' && r != '_' && (r < '0' || r > '9') &&
				(r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			return false
		}
	}
	return len(name) <= MaxZone && name != "Local"
}

// zoneOf works the offsets of a place out, for all instants that limits decide at.
func zoneOf(place *time.Location) zone {
	var z zone
	shown := int64(math.MinInt64)
	for from := int64(math.MinInt64); ; {
		at := time.Unix(0, max(from, int64(earliest))).In(place)
		_, seconds := at.Zone()
		ahead := int64(seconds) * int64(time.Second)
		if len(z) == 0 || z[len(z)-1].ahead != ahead {
			z = append(z, offset{from, ahead, shown})
		}
		_, end := at.ZoneBounds()
		if !end.IsZero() && !end.After(at) {
			// on the last day of a leap year ZoneBounds says that the year is over
			end = at.Add(day)
		}
		if end.IsZero() || end.UnixNano() > int64(latest) {
			return z
		}
		from = end.UnixNano()
		shown = max(shown, from+ahead-1)
	}
}

// window is the window of c that now lies in.
func (z zone) window(c Calendar, now int64) (start, end int64) {
	i := sort.Search(len(z), func(i int) bool { return z[i].from > now }) - 1
	local := now + z[i].ahead
	if c == Minutes || c == Hours {
		first := floorTo(local, int64(c.Per())) - z[i].ahead
		end = first + int64(c.Per())
		if i+1 < len(z) {
			end = min(end, z[i+1].from)
		}
		return max(first, z[i].from), end
	}
	start, end = c.around(max(local, z[i].shown))
	return z.reaches(i, start), z.reaches(i, end)
}

// reaches is when the local clock first shows t or more, which is around offset i.
func (z zone) reaches(i int, t int64) int64 {
	for z[i].shown >= t {
		i--
	}
	for i+1 < len(z) && z[i+1].shown < t {
		i++
	}
	return max(z[i].from, t-z[i].ahead)
}

// around is the day, week, month or year of t, where neither is of any zone.
func (c Calendar) around(t int64) (start, end int64) {
	switch c {
	case Days:
		start = floorTo(t, int64(day))
		return start, start + int64(day)
	case Weeks:
		const monday = int64(4 * day) // 5 January 1970
		start = floorTo(t-monday, int64(7*day)) + monday
		return start, start + int64(7*day)
	}
	year, month, _ := time.Unix(0, t).UTC().Date()
	nextYear, nextMonth := year, month+1
	if c == Years {
		month, nextYear, nextMonth = 1, year+1, 1
	}
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).UnixNano(),
		time.Date(nextYear, nextMonth, 1, 0, 0, 0, 0, time.UTC).UnixNano()
}
