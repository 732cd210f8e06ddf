package limiter

import (
	"fmt"
	"math"
	"time"
)

// perUnits are the units of a duration, in the order in which errors list them.
var perUnits = []struct {
	name string
	size time.Duration
}{
	{"ms", time.Millisecond},
	{"s", time.Second},
	{"m", time.Minute},
	{"h", time.Hour},
	{"d", 24 * time.Hour},
	{"w", 7 * 24 * time.Hour},
}

// perWords are the units of the calendar that have one length everywhere in UTC.
var perWords = map[string]time.Duration{
	"minute": time.Minute,
	"hour":   time.Hour,
	"day":    24 * time.Hour,
	"week":   7 * 24 * time.Hour,
}

// PerAccepts says what ParsePer reads.
const PerAccepts = "write whole numbers with units, as in 500ms, 10s, 5m, 1h30m, 1d, 1w, or one of minute, hour, day, week"

// ParsePer reads a period as people write one, in files and in requests: whole numbers with units, as in 500ms, 10s,
// 1h30m, 1d, 1w, or one of minute, hour, day, week. A day has 24 hours. It does not check the bounds of a Spec.
func ParsePer(text string) (time.Duration, error) {
	if d, found := perWords[text]; found {
		return d, nil
	}
	if text == "month" || text == "year" {
		return 0, fmt.Errorf("calendar windows of a %s are not built yet; minute, hour, day and week are, and lengths as in 30d", text)
	}
	sum := time.Duration(0)
	for rest := text; ; {
		n, digits := leadingNumber(rest)
		size, letters := leadingUnit(rest[digits:])
		if digits == 0 || letters == 0 {
			return 0, fmt.Errorf("%q is no length of time; %s", text, PerAccepts)
		}
		if n < 0 || n > int64((math.MaxInt64-sum)/size) {
			return 0, fmt.Errorf("%q is longer than this program can count", text)
		}
		sum += time.Duration(n) * size
		if rest = rest[digits+letters:]; rest == "" {
			return sum, nil
		}
	}
}

// leadingNumber reads the digits at the beginning of s; n is -1 if they say more than an int64 holds.
func leadingNumber(s string) (n int64, length int) {
	for length < len(s) && s[length] >= '0' && s[length] <= '9' {
		if digit := int64(s[length] - '0'); n < 0 || n > (math.MaxInt64-digit)/10 {
			n = -1
		} else {
			n = 10*n + digit
		}
		length++
	}
	return n, length
}

// leadingUnit finds the unit at the beginning of s: its letters up to the next digit.
func leadingUnit(s string) (size time.Duration, length int) {
	for length < len(s) && (s[length] < '0' || s[length] > '9') {
		length++
	}
	for _, u := range perUnits {
		if u.name == s[:length] {
			return u.size, length
		}
	}
	return 0, 0
}
