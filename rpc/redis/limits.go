package redis

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/door"
	"penstock/rpc/resp"
)

// Limits of the Redis protocol come with each command. They are inline limits, so they count
// together with those of HTTP and gRPC. Those of RL.* have no name, and are those that have no name
// either and the same limit, period and refill. A key of CL.THROTTLE has one counter whatever the
// numbers, so these limits have a name:
//
//	RL.REDUCE key max seconds REFILL n
//	    {"algorithm":"token_bucket","client_time":true,"limit":max,"per":"…s","refill":n}
//	RL.SESSIONIZE key max seconds REFILL n
//	    the same and "sessions":true
//	CL.THROTTLE key burst count seconds
//	    {"name":"cl.throttle","algorithm":"gcra","limit":count,"per":"…s","burst":burst+1}
//
// A command does what it does where it comes from, faults of their arithmetic excepted: numbers
// that overflow there are refused here.

// replyKind says what the reply to a check is.
type replyKind uint8

const (
	replyTokens   replyKind = iota // RL.*: the tokens before the take
	replySession                   // RL.SESSIONIZE: the same, and when the session began, in ms
	replyThrottle                  // CL.THROTTLE: five numbers
)

// append writes the reply to a decision on cost by the limit l.
func (kind replyKind) append(b []byte, d *cluster.Decision, l *limiter.Limit, cost int64) []byte {
	switch kind {
	case replyThrottle:
		return appendCell(b, d, l, cost)
	case replySession:
		b = append(b, "*2\r\n"...)
		b = resp.AppendInt(b, tokensBefore(d, cost))
		return resp.AppendInt(b, int64(d.Session))
	default:
		return resp.AppendInt(b, tokensBefore(d, cost))
	}
}

// tokensBefore is what was in the bucket. The client compares it with what it asked for: it is
// admitted if there was as much.
func tokensBefore(d *cluster.Decision, cost int64) int64 {
	if d.Allowed {
		return d.Remaining + cost
	}
	return d.Remaining + d.Drained
}

// Texts of Smyte's server.
const (
	smyteInteger = "Value is not an integer or out of range"
	smyteSyntax  = "Syntax error"
)

// bucketVerb is a command about a token bucket.
type bucketVerb struct {
	unit     time.Duration // of its times
	reduce   bool          // it takes tokens
	sessions bool
}

// bucketWords are the words of a command about a token bucket.
type bucketWords struct {
	limit, per, refill, take int64
	at                       int64 // a client's time, if terms say so
	terms                    cluster.Terms
}

// read reads words: key max time [REFILL n] [TAKE n] [AT time] [STRICT]. It returns the reply to
// words that are wrong.
func (v bucketVerb) read(words [][]byte) (b bucketWords, fault string) {
	limit, ok := smyteInt(words[2])
	per, ok2 := smyteInt(words[3])
	if !ok || !ok2 || int64(int32(per)) != per {
		return b, smyteInteger
	}
	b = bucketWords{limit: limit, per: per, refill: limit, terms: cluster.Terms{Drain: true}}
	if v.reduce {
		b.take = 1
	}
	for i := 4; i < len(words); i += 2 {
		if isWord(words[i], "STRICT") {
			b.terms.Strict = true
			i--
			continue
		}
		if i+1 == len(words) {
			return b, smyteSyntax
		}
		n, ok := smyteInt(words[i+1])
		switch {
		case !ok:
			return b, smyteInteger
		case isWord(words[i], "REFILL"):
			b.refill = n
		case isWord(words[i], "TAKE") && v.reduce:
			b.take = n
		case isWord(words[i], "AT"):
			b.terms.Timed, b.at = true, n
		default:
			return b, smyteSyntax
		}
	}
	unit := int64(v.unit / time.Millisecond)
	if !b.counted() || b.at > math.MaxInt64/unit {
		return b, smyteInteger
	}
	b.terms.At = limiter.Millis(b.at * unit)
	return b, ""
}

// counted reports whether the numbers are those of a bucket and of a request.
func (b *bucketWords) counted() bool {
	return b.limit > 0 && b.per > 0 && b.refill > 0 && b.take >= 0 && b.at >= 0
}

// run is RL.GET, RL.REDUCE and those like them. A request that asks for more than there is takes
// all of it.
func (v bucketVerb) run(c *connection, words [][]byte) (fault string) {
	b, fault := v.read(words)
	if fault != "" {
		return fault
	}
	l, err := c.limit(commandLimit{
		bucket: true, sessions: v.sessions, count: b.limit, more: b.refill,
		per: time.Duration(b.per) * v.unit,
	}, b.take != 0)
	if err != nil {
		return bucketFault(err)
	}
	reply := replyTokens
	if v.sessions {
		reply = replySession
	}
	return c.round.check(l, words[1], b.take, b.terms, reply)
}

// throttle is CL.THROTTLE: key max_burst count period [quantity].
func (c *connection) throttle(words [][]byte) (fault string) {
	if len(words) != 5 && len(words) != 6 {
		return cellFault + "Usage: cl.throttle <key> <max_burst> <count per period> <period> " +
			"[<quantity>]"
	}
	numbers := [4]int64{3: 1}
	for i, word := range words[2:] {
		n, ok := cellInt(word)
		if !ok {
			return fmt.Sprintf(cellFault+"Couldn't parse as integer: %.128s", word)
		}
		numbers[i] = n
	}
	rate, err := readCellRate(numbers[0], numbers[1], numbers[2])
	if err != nil {
		return cellFault + err.Error()
	}
	l, err := c.limit(rate.limit(), numbers[3] != 0)
	if err != nil {
		return throttleFault(err)
	}
	return c.round.check(l, words[1], numbers[3], cluster.Terms{}, replyThrottle)
}

// cellFault is how redis-cell begins an error.
const cellFault = "Cell error: Store error: "

// throttleFault is the reply to a command with a limit of CL.THROTTLE that is refused.
func throttleFault(err error) string {
	if door.IsAccess(err) {
		return accessFault(err)
	}
	return cellFault + err.Error()
}

// bucketFault is the reply to a command with a limit of RL.* that is refused.
func bucketFault(err error) string {
	var refused *door.Fault
	switch {
	case door.IsAccess(err):
		return accessFault(err)
	case errors.As(err, &refused):
		return "ERR " + refused.Text
	}
	return smyteInteger
}

// keyFault is the reply to a command with a key that cannot be one; empty: it can.
func keyFault(key []byte) string {
	if len(key) >= cluster.MinKey && len(key) <= cluster.MaxKey {
		return ""
	}
	return fmt.Sprintf("ERR key: has %d bytes; %d to %d are accepted", len(key), cluster.MinKey,
		cluster.MaxKey)
}

// commandLimit is a limit in a command's numbers.
type commandLimit struct {
	bucket, sessions bool  // of RL.*; else CL.THROTTLE's
	count            int64 // limit
	more             int64 // refill or burst
	per              time.Duration
}

// limitsAtHand is how many limits a connection has at hand. Most clients use one or two.
const limitsAtHand = 8

// knownLimit is a limit with what it was made of. From until on it must be brought again, or it
// would not count among those of the client.
type knownLimit struct {
	of    commandLimit
	limit *limiter.Limit
	until time.Time
}

// limit is of as a limit, for a command that charges or for one that does not. An error is a
// *limiter.SpecError.
func (c *connection) limit(of commandLimit, charges bool) (*limiter.Limit, error) {
	mix := uint64(of.count)*0x9e3779b97f4a7c15 ^ uint64(of.more)*0xd6e8feb86659fd93 ^ uint64(
		of.per)*0xff51afd7ed558ccd
	known := &c.limits[mix>>61]
	if known.of == of && c.now.Before(known.until) {
		return known.limit, nil
	}
	spec := limiter.Spec{
		Name: limiter.ThrottleName, Algorithm: limiter.GCRA,
		Limit: of.count, Burst: of.more, Per: of.per,
	}
	if of.bucket {
		spec = limiter.Spec{
			Algorithm: limiter.TokenBucket, Anchor: limiter.FirstHit, Limit: of.count,
			Refill: of.more, Per: of.per,
			ClientTime: true, Sessions: of.sessions,
		}
	}
	if !charges {
		return c.door.inlines.Get(spec, c.client.caller())
	}
	l, until, err := c.door.inlines.BringUntil(spec, c.client.caller(), c.now)
	if err == nil {
		*known = knownLimit{of, l, until}
	}
	return l, err
}

// smyteInt reads a number as Smyte's server does: with a sign and blanks around it, if there are
// any.
func smyteInt(b []byte) (int64, bool) {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isBlank(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return cellInt(b)
}

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// cellInt reads a number as redis-cell does: digits, with a sign if there is one.
func cellInt(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 18 { // it may overflow, or be written with many zeros
		n, err := strconv.ParseInt(string(b), 10, 64)
		return n, err == nil
	}
	sign := int64(1)
	switch b[0] {
	case '-':
		sign, b = -1, b[1:]
	case '+':
		b = b[1:]
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return sign * n, len(b) > 0
}

// isWord reports whether b is word, which is in capitals, whatever the case of b.
func isWord(b []byte, word string) bool {
	return len(b) == len(word) && strings.EqualFold(borrow(b), word)
}

// borrow is b as a string without a copy: good as long as b is not changed.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
