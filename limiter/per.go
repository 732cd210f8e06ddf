package limiter

import (
	"fmt"
	"time"
)

// PerForms says what ParsePer reads.
const PerForms = "write 10s, 5m, 1h30m, 1d, 2w, or second, minute, hour, day, week; for a " +
	"fixed_window also month, year"

// perUnits are what a number in a period counts.
var perUnits = map[string]time.Duration{
	"ms": time.Millisecond,
	"s":  time.Second,
	"m":  time.Minute,
	"h":  time.Hour,
	"d":  24 * time.Hour,
	"w":  7 * 24 * time.Hour,
}

// perWords are periods by name that have one length in UTC.
var perWords = map[string]time.Duration{
	"second": time.Second,
	"minute": time.Minute,
	"hour":   time.Hour,
	"day":    24 * time.Hour,
	"week":   7 * 24 * time.Hour,
}

// ReadPer sets the period of s to what text says: a length, as ParsePer reads it; or where s is a
// fixed window without an anchor of its own, and has a time zone or text is week, month or year, a
// window of a calendar. It is called when s has all else.
func (s *Spec) ReadPer(text string) (err error) {
	c, named := CalendarNamed(text)
	if named && s.Algorithm == FixedWindow && s.Anchor == Epoch &&
		(c >= Weeks || s.TimeZone != "") {
		s.Calendar, s.Per = c, c.Per()
		return nil
	}
	s.Calendar = 0
	s.Per, err = ParsePer(text)
	return err
}

// ParsePer reads how long a window is: whole numbers with units from ms to w, or one of the words
// second, minute, hour, day and week. It accepts up to MaxPer; what is too short, New refuses.
func ParsePer(text string) (time.Duration, error) {
	if d, found := perWords[text]; found {
		return d, nil
	}
	if text == "month" || text == "year" {
		return 0, fmt.Errorf("%ss differ in length, and only a fixed_window anchored at the "+
			"epoch counts by them; %s", text, PerForms)
	}
	sum := time.Duration(0)
	for rest := text; ; {
		n, digits := leadingNumber(rest)
		unit := leadingWord(rest[digits:])
		size := perUnits[unit]
		if digits == 0 || size == 0 {
			return 0, fmt.Errorf("%.40q is not a period; %s", text, PerForms)
		}
		if n > int64((MaxPer-sum)/size) {
			return 0, fmt.Errorf("%.40q is not a period up to %d days", text, MaxPer/(24*time.Hour))
		}
		sum += time.Duration(n) * size
		if rest = rest[digits+len(unit):]; rest == "" {
			return sum, nil
		}
	}
}

// leadingNumber reads the digits at the beginning of s. A number that is too large for any period
// stays too large.
func leadingNumber(s string) (n int64, length int) {
	for length < len(s) && s[length] >= '0' && s[length] <= '9' {
		n = min(10*n+int64(s[length]-'0'), int64(MaxPer))
		length++
	}
	return n, length
}

// leadingWord is s up to the next digit.
func leadingWord(s string) string {
	for i := range len(s) {
		if s[i] >= '0' && s[i] <= '9' {
			return s[:i]
		}
	}
	return s
}
