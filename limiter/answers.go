package limiter

import (
	"fmt"
	"math/bits"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Answers are what the caller of a limit is told beside yes and no. The node that is asked gives
// them; the node that decides need not know them.
type Answers struct {
	// percent of the wait by which a denial's RetryAfter may be longer than need be, 0 … 100: see
	// SpreadRetry
	Spread int
	Status int // HTTP status of a denial, 400 … 599; 0: that of the door
	// body of a denial over HTTP, up to MaxBody bytes of UTF-8; "": that of the door
	Body        string
	ContentType string // media type of Body, up to MaxContentType bytes; default text/plain
	// OnDeny DenyTag: how an admitted request beyond the limit is marked, 1 … MaxTag bytes of
	// printable ASCII; default "over-limit"
	Tag string
	// OnDeny DenyDeprioritize: the tier of an admitted request beyond the limit, 1 … MaxTier;
	// default 1. Within the limit it is 0
	Tier int
}

// Bounds of Answers.
const (
	MaxSpread      = 100     // percent
	MaxBody        = 4 << 10 // bytes
	MaxContentType = 128     // bytes
	MaxTag         = 64      // bytes
	MaxTier        = 9
)

const (
	defaultTag         = "over-limit"
	defaultContentType = "text/plain; charset=utf-8"
)

// SpreadRetry is retry, the RetryAfter of a denial of the key with this hash at now, as callers are
// told it: up to Spread percent longer, so that callers that were denied one after the other
// do not come back in one moment. It is never shorter, and follows from the key and from now alone.
func (a *Answers) SpreadRetry(now Instant, hash uint64, retry time.Duration) time.Duration {
	if a.Spread == 0 || retry <= 0 {
		return retry
	}
	hi, lo := bits.Mul64(uint64(retry), uint64(a.Spread))
	most, _ := bits.Div64(hi, lo, 100) // of at most a hundredth more than retry, so it fits
	more, _ := bits.Mul64(scatter(hash^uint64(now)*0x9e3779b97f4a7c15), most+1)
	return time.Duration(min(uint64(retry)+more, 1<<63-1))
}

// scatter mixes the bits of x: numbers that differ little become numbers that differ in all bits.
func scatter(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// SpreadForms says how a spread is written.
const SpreadForms = "shares like 10% are accepted, from 0% to 100%"

// ParseSpread reads a share of percents: "10%".
func ParseSpread(text string) (percent int, err error) {
	digits, found := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	if !found || err != nil || n < 0 || n > MaxSpread || strconv.Itoa(n) != digits {
		return 0, fmt.Errorf("%.20q is not a share; %s", text, SpreadForms)
	}
	return n, nil
}

// check accepts or refuses each field by itself, and beside the OnDeny that decides which of them
// are ever used.
func (a *Answers) check(on OnDeny) error {
	switch {
	case a.Spread < 0 || a.Spread > MaxSpread:
		return &SpecError{"spread", fmt.Sprintf("is %d%%; 0%% to %d%% are accepted", a.Spread,
			MaxSpread)}
	case a.Status != 0 && (a.Status < 400 || a.Status > 599):
		return &SpecError{"status", fmt.Sprintf("is %d; 400 to 599 are accepted", a.Status)}
	case len(a.Body) > MaxBody:
		return &SpecError{"body", fmt.Sprintf("has %d bytes; at most %d are accepted",
			len(a.Body), MaxBody)}
	case !utf8.ValidString(a.Body):
		return &SpecError{"body", "is not UTF-8 text"}
	case a.ContentType != "" && !isMediaType(a.ContentType):
		return &SpecError{"content_type", fmt.Sprintf("%.40q is not a media type up to %d bytes; "+
			"they look like application/json", a.ContentType, MaxContentType)}
	case a.ContentType != "" && a.Body == "":
		return &SpecError{"content_type", "is that of a body; give a body, or leave it out"}
	}
	return a.checkBeside(on)
}

// checkBeside refuses marks that are none, and what on has no use for.
func (a *Answers) checkBeside(on OnDeny) error {
	const denials = "is part of a denial, and on_deny says that nothing is denied; " +
		"leave one of them out"
	switch {
	case len(a.Tag) > MaxTag || strings.ContainsFunc(a.Tag, isNotPrinted) ||
		strings.Contains(a.Tag, " "):
		return &SpecError{"tag", fmt.Sprintf("%.70q is not 1 to %d printable ASCII characters "+
			"without blanks", a.Tag, MaxTag)}
	case a.Tier < 0 || a.Tier > MaxTier:
		return &SpecError{"tier", fmt.Sprintf("is %d; 1 to %d are accepted", a.Tier, MaxTier)}
	case a.Tag != "" && on != DenyTag:
		return &SpecError{"tag", "is for on_deny: tag"}
	case a.Tier != 0 && on != DenyDeprioritize:
		return &SpecError{"tier", "is for on_deny: deprioritize"}
	case on == DenyReject, on == DenyDelay: // which denies what would have to wait too long
	case a.Spread != 0:
		return &SpecError{"spread", denials}
	case a.Status != 0:
		return &SpecError{"status", denials}
	case a.Body != "":
		return &SpecError{"body", denials}
	}
	return nil
}

func isMediaType(text string) bool {
	kind, _, err := mime.ParseMediaType(text)
	return err == nil && len(text) <= MaxContentType && strings.Contains(kind, "/") &&
		!strings.ContainsFunc(text, isNotPrinted)
}

func isNotPrinted(r rune) bool { return r < ' ' || r > '~' }

// fill puts the defaults in.
func (a *Answers) fill(on OnDeny) {
	if on == DenyTag && a.Tag == "" {
		a.Tag = defaultTag
	}
	if on == DenyDeprioritize && a.Tier == 0 {
		a.Tier = 1
	}
	if a.Body != "" && a.ContentType == "" {
		a.ContentType = defaultContentType
	}
}
