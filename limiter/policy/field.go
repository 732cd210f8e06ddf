package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
)

// draft is a limit while its fields are read.
type draft struct {
	spec      limiter.Spec
	per       string
	overrides []limiter.Override

	anchored, noBurst bool // anchor is given; burst is given as 0 or less
}

// finish makes the limit. An error is a *limiter.SpecError.
func (d *draft) finish() (*limiter.Limit, error) {
	if d.noBurst && d.spec.Algorithm != limiter.LeakyBucket {
		return nil, &limiter.SpecError{
			Field:  "burst",
			Reason: "must be at least 1; leave it out to have the limit",
		}
	}
	if !d.anchored {
		d.spec.Anchor = limiter.DefaultAnchor(d.spec.Algorithm)
	}
	if d.per != "" {
		if err := d.spec.ReadPer(d.per); err != nil {
			return nil, &limiter.SpecError{Field: "per", Reason: err.Error()}
		}
	}
	return limiter.New(d.spec, d.overrides...)
}

// limitField is a field that a limit may have: how it is read and written, and what editors are
// told about it.
type limitField struct {
	name  string
	read  func(v value, d *draft) error
	write func(s *limiter.Spec) any // as Format has it; nil: it is left out
	shape shape
}

// limitFields are all of them, in the order in which errors list them and Format writes them.
var limitFields = []limitField{
	filled("name", textShape("What requests and rules call the limit.", limiter.MaxName),
		"give the limit a name", func(s *limiter.Spec) *string { return &s.Name }),
	{"algorithm", readAlgorithm, func(s *limiter.Spec) any {
		return s.Algorithm.String()
	}, wordsShape("How requests are counted.",
		strings.Split(limiter.AlgorithmNames(), ", ")...)},
	number("limit", numberShape("Units in each period.", 1), func(s *limiter.Spec) *int64 {
		return &s.Limit
	}),
	{"per", readPer, func(s *limiter.Spec) any {
		if s.Calendar != 0 {
			return s.Calendar.String()
		}
		return perText(s.Per)
	}, periodShape("The period: 10s, 5m, 1h30m, or a word.")},
	filled("time_zone", textShape("Of windows of a calendar.", 0), "leave it out for UTC",
		func(s *limiter.Spec) *string { return &s.TimeZone }),
	{"burst", func(v value, d *draft) (err error) {
		d.spec.Burst, err = v.number()
		d.noBurst = err == nil && d.spec.Burst < 1
		return err
	}, func(s *limiter.Spec) any {
		if s.Algorithm == limiter.LeakyBucket { // where 0 means something
			return s.Burst
		}
		return given(s.Burst)
	}, numberShape("Most units at once.", 0)},
	{"anchor", func(v value, d *draft) error {
		i, err := v.word(limiter.Words["anchor"])
		d.spec.Anchor, d.anchored = limiter.Anchor(i), true
		return err
	}, func(s *limiter.Spec) any {
		if s.Anchor == limiter.DefaultAnchor(s.Algorithm) {
			return nil
		}
		return limiter.Words["anchor"][s.Anchor]
	}, wordsShape("What windows begin with.", limiter.Words["anchor"]...)},
	boolean("count_rejected", "A refused request counts too.", func(s *limiter.Spec) *bool {
		return &s.CountRejected
	}),
	period("min_gap", "Least time between two requests that count.", limiter.ParsePer,
		func(s *limiter.Spec) *time.Duration { return &s.MinGap }),
	{"refill", func(v value, d *draft) (err error) {
		if d.spec.Refill, err = v.number(); err == nil && d.spec.Refill < 1 {
			err = errors.New("must be at least 1; leave it out to have the limit")
		}
		return err
	}, func(s *limiter.Spec) any {
		return given(s.Refill)
	}, numberShape("Tokens that come each period.", 1)},
	boolean("strict", "An empty bucket waits a whole period for its refill.",
		func(s *limiter.Spec) *bool { return &s.Strict }),
	boolean("drain", "A refused request takes all that is left.", func(s *limiter.Spec) *bool {
		return &s.Drain
	}),
	small("buckets", numberShape("Parts of the period.", 1), 1, limiter.MaxBuckets,
		func(s *limiter.Spec) *int { return &s.Buckets }),
	boolean("lenient", "The part that is cut by the beginning of the window does not count.",
		func(s *limiter.Spec) *bool { return &s.Lenient }),
	number("max_debt", numberShape("Most that a report may charge beyond what there is.", 0),
		func(s *limiter.Spec) *int64 { return &s.MaxDebt }),
	boolean("client_time", "Requests may say their time.", func(s *limiter.Spec) *bool {
		return &s.ClientTime
	}),
	boolean("sessions", "Decisions say when their session began.", func(s *limiter.Spec) *bool {
		return &s.Sessions
	}),
	words("on_error", "Answer while no owner answers.", func(s *limiter.Spec) *limiter.OnError {
		return &s.OnError
	}),
	words("unsettled", "What a reservation costs that nobody settles.",
		func(s *limiter.Spec) *limiter.Unsettled { return &s.Unsettled }),
	words("on_deny", "What a refusal is to its caller.", func(s *limiter.Spec) *limiter.OnDeny {
		return &s.OnDeny
	}),
	words("consistency", "Where requests are decided.",
		func(s *limiter.Spec) *limiter.Consistency { return &s.Consistency }),
	words("on_partition", "Answer of a minority.", func(s *limiter.Spec) *limiter.OnPartition {
		return &s.OnPartition
	}),
	period("max_delay", "Longest wait of a request beyond the limit, with on_deny: delay.",
		limiter.ParseMaxDelay, func(s *limiter.Spec) *time.Duration { return &s.MaxDelay }),
	boolean("dry_run", "Decide and count, and never deny.", func(s *limiter.Spec) *bool {
		return &s.DryRun
	}),
	{"replication", func(v value, d *draft) error {
		i, err := v.word(limiter.Words["replication"])
		d.spec.Sync = i == 1
		return err
	}, func(s *limiter.Spec) any {
		if !s.Sync {
			return nil
		}
		return limiter.Words["replication"][1]
	}, wordsShape("Whether an answer waits for a copy.", limiter.Words["replication"]...)},
	{"spread", func(v value, d *draft) (err error) {
		d.spec.Answers.Spread, err = v.percent()
		return err
	}, func(s *limiter.Spec) any {
		if s.Answers.Spread == 0 {
			return nil
		}
		return fmt.Sprintf("%d%%", s.Answers.Spread)
	}, shape{
		"type": "string", "pattern": `^(100|[1-9]?[0-9])%$`,
		"description": "How much longer retry_after may be.",
	}},
	small("status", rangeShape("HTTP status of a denial.", 400, 599), 400, 599,
		func(s *limiter.Spec) *int { return &s.Answers.Status }),
	filled("body", textShape("Body of a denial over HTTP.", limiter.MaxBody),
		"leave it out to have the door's", func(s *limiter.Spec) *string {
			return &s.Answers.Body
		}),
	filled("content_type", patternShape("Media type of the body.", `^[!-~]+/[!-~]+(\s*;.*)?$`,
		limiter.MaxContentType), "leave it out for plain text", func(s *limiter.Spec) *string {
		return &s.Answers.ContentType
	}),
	filled("tag", patternShape("Mark of a request beyond the limit, with on_deny: tag.",
		`^[!-~]+$`, limiter.MaxTag), "leave it out for over-limit", func(s *limiter.Spec) *string {
		return &s.Answers.Tag
	}),
	small("tier", rangeShape("Tier of a request beyond the limit, with on_deny: deprioritize.", 1,
		limiter.MaxTier), 1, limiter.MaxTier, func(s *limiter.Spec) *int {
		return &s.Answers.Tier
	}),
	filled("parent", textShape("Name of the limit above, which is charged too, under the key up "+
		"to its last slash.", limiter.MaxName), "leave it out if no limit is above this one",
		func(s *limiter.Spec) *string { return &s.Parent }),
	{name: "overrides", shape: overridesShape()}, // see page.overrides
	{name: "candidate"},                          // see page.candidate and limitShape
}

// given is v, or nil for what is left out.
func given[T comparable](v T) any {
	var none T
	if v == none {
		return nil
	}
	return v
}

// filled is a field with a text that is not empty; instead says what to do about one that is.
func filled(name string, sh shape, instead string, at func(*limiter.Spec) *string) limitField {
	return limitField{name, func(v value, d *draft) error {
		return v.filled(at(&d.spec), instead)
	}, func(s *limiter.Spec) any { return given(*at(s)) }, sh}
}

// number is a field with a whole number.
func number(name string, sh shape, at func(*limiter.Spec) *int64) limitField {
	return limitField{name, func(v value, d *draft) (err error) {
		*at(&d.spec), err = v.number()
		return err
	}, func(s *limiter.Spec) any { return given(*at(s)) }, sh}
}

// small is a field with a number from least to most.
func small(name string, sh shape, least, most int, at func(*limiter.Spec) *int) limitField {
	return limitField{name, func(v value, d *draft) (err error) {
		*at(&d.spec), err = v.small(least, most)
		return err
	}, func(s *limiter.Spec) any { return given(int64(*at(s))) }, sh}
}

// boolean is a field that is true, or left out.
func boolean(name, about string, at func(*limiter.Spec) *bool) limitField {
	return limitField{name, func(v value, d *draft) (err error) {
		*at(&d.spec), err = v.flag()
		return err
	}, func(s *limiter.Spec) any {
		return given(*at(s))
	}, shape{"type": "boolean", "description": about}}
}

// period is a field with a length of time.
func period(
	name, about string, parse func(string) (time.Duration, error),
	at func(*limiter.Spec) *time.Duration,
) limitField {
	return limitField{name, func(v value, d *draft) error {
		text, err := v.text()
		if err == nil {
			*at(&d.spec), err = parse(text)
		}
		return err
	}, func(s *limiter.Spec) any {
		if *at(s) == 0 {
			return nil
		}
		return perText(*at(s))
	}, periodShape(about)}
}

// words is a field that is one of a few words.
func words[T ~uint8](name, about string, at func(*limiter.Spec) *T) limitField {
	list := limiter.Words[name]
	return limitField{name, func(v value, d *draft) error {
		i, err := v.word(list)
		*at(&d.spec) = T(i)
		return err
	}, func(s *limiter.Spec) any {
		if *at(s) == 0 {
			return nil
		}
		return list[*at(s)]
	}, wordsShape(about, list...)}
}

func readAlgorithm(v value, d *draft) error {
	text, err := v.text()
	if err != nil {
		return fmt.Errorf("is %s; %s are accepted", describe(v.node), limiter.AlgorithmNames())
	}
	var known bool
	if d.spec.Algorithm, known = limiter.AlgorithmNamed(text); !known {
		return fmt.Errorf("%q is unknown; %s are accepted", text, limiter.AlgorithmNames())
	}
	return nil
}

func readPer(v value, d *draft) error {
	if _, bare := v.node.(*ast.IntegerNode); bare {
		return errors.New("has no unit; " + limiter.PerForms)
	}
	text, err := v.text()
	if err != nil {
		return err
	}
	// what a calendar word means depends on the other fields
	d.per = text
	if _, calendar := limiter.CalendarNamed(text); !calendar {
		_, err = limiter.ParsePer(text)
	}
	return err
}

// fieldNamed is the field of a limit with that name; nil: there is none.
func fieldNamed(name string) *limitField {
	i := slices.IndexFunc(limitFields, func(f limitField) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return &limitFields[i]
}

func limitFieldNames() string {
	names := make([]string, len(limitFields))
	for i, f := range limitFields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}
