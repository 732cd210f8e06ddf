package sim

import (
	"sync"
	"time"

	"penstock/limiter"
)

// Windows of a calendar, found with a clock on the wall and without a table of when clocks are set:
// by looking at the clock again and again. Clocks are set by whole quarters of an hour, at full
// minutes; so those are often enough.

// wallIn is where the clock hangs. To read a place's rules takes longer than a small world lasts,
// so they are kept for all worlds.
func wallIn(name string) *time.Location {
	if p, known := walls.Load(name); known {
		return p.(*time.Location)
	}
	p, err := time.LoadLocation(name)
	if err != nil {
		panic(err) // mustLimit has accepted it
	}
	walls.Store(name, p)
	return p
}

var walls sync.Map // string → *time.Location

// calendarWindow is the window of s that t lies in.
func calendarWindow(s *limiter.Spec, t limiter.Instant) (start, end limiter.Instant) {
	wall := func(t limiter.Instant) time.Time {
		return time.Unix(0, int64(t)).In(wallIn(s.TimeZone))
	}
	if s.Calendar == limiter.Minutes || s.Calendar == limiter.Hours {
		return whileItShows(t, func(t limiter.Instant) [3]int {
			w := wall(t)
			_, ahead := w.Zone() // an hour that is shown twice is two windows
			if s.Calendar == limiter.Hours {
				return [3]int{ahead, w.Hour()}
			}
			return [3]int{ahead, w.Hour(), w.Minute()}
		})
	}
	// a clock that is set back does not begin a day again
	const quarter, longestBack = limiter.Instant(15 * time.Minute), 12
	day := dayOf(wall(t))
	for i := range limiter.Instant(longestBack) {
		day = max(day, dayOf(wall(t-t%quarter-i*quarter)))
	}
	first, next := namedDays(s.Calendar, day)
	shows := func(day int) limiter.Instant {
		// nowhere does it begin earlier
		at := limiter.Instant(day)*limiter.Instant(24*time.Hour) - 15*limiter.Instant(time.Hour)
		for dayOf(wall(at)) < day {
			at += quarter
		}
		return at
	}
	return shows(first), shows(next)
}

// whileItShows is from when to when the clock shows what it shows at t, which is an hour at most.
func whileItShows(t limiter.Instant, face func(limiter.Instant) [3]int) (start,
	end limiter.Instant,
) {
	const minute = limiter.Instant(time.Minute)
	start, end = t-t%minute, t-t%minute+minute
	for face(start-1) == face(t) {
		start -= minute
	}
	for face(end) == face(t) {
		end += minute
	}
	return start, end
}

// dayOf counts days by what a clock shows.
func dayOf(w time.Time) int {
	return int(time.Date(w.Year(), w.Month(), w.Day(), 0, 0, 0, 0,
		time.UTC).Unix() / (24 * 60 * 60))
}

// namedDays are the first day of the window that a day lies in, and of the one after it.
func namedDays(c limiter.Calendar, day int) (first, next int) {
	on := time.Unix(int64(day)*24*60*60, 0).UTC()
	switch c {
	case limiter.Weeks:
		monday := day - (int(on.Weekday())+6)%7
		return monday, monday + 7
	case limiter.Months:
		return dayOf(on.AddDate(0, 0, 1-on.Day())),
			dayOf(time.Date(on.Year(), on.Month()+1, 1, 0, 0, 0, 0, time.UTC))
	case limiter.Years:
		return dayOf(time.Date(on.Year(), 1, 1, 0, 0, 0, 0, time.UTC)),
			dayOf(time.Date(on.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	return day, day + 1
}
