package native

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/notation"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// notInline are the fields of a Spec that no client sends, and why.
var notInline = map[string]string{
	"Override": "overrides are for those who do not know their keys; a client sends the limit " +
		"that the key has",
	"Unlimited": "the same",
	"Planned":   "the same",
	"Nameless":  "a door sets it for an inline limit without a name",
	"Inline":    "a limit that a client sends is one, whatever it says",
	"Parent":    "only a limit with a name that all know has one",
}

// differing names the fields in which two Specs differ.
func differing(a, b limiter.Spec) (names []string) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if !x.Field(i).Equal(y.Field(i)) {
			names = append(names, x.Type().Field(i).Name)
		}
	}
	return names
}

// checkInline: every field of an inline limit that a door reads changes the Spec that comes out,
// and all of them together every field that a Spec has.
func checkInline(t *testing.T, door string, changed map[string][]string) {
	reached := map[string]bool{}
	for name, fields := range changed {
		if len(fields) == 0 {
			t.Errorf("%s: %s changes nothing", door, name)
		}
		for _, f := range fields {
			reached[f] = true
		}
	}
	spec := reflect.TypeFor[limiter.Spec]()
	for i := range spec.NumField() {
		if name := spec.Field(i).Name; !reached[name] && notInline[name] == "" {
			t.Errorf("%s: no field of an inline limit is for Spec.%s; there is: %v", door, name,
				slices.Sorted(maps.Keys(changed)))
		}
	}
}

// TestInlineFieldsOfGRPC holds penstock.v1.InlineLimit and limiter.Spec together.
func TestInlineFieldsOfGRPC(t *testing.T) {
	changed := map[string][]string{}
	fields := (&penstockv1.InlineLimit{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		in := &penstockv1.InlineLimit{}
		switch f.Kind() {
		case protoreflect.StringKind:
			in.ProtoReflect().Set(f, protoreflect.ValueOfString("x"))
		case protoreflect.BoolKind:
			in.ProtoReflect().Set(f, protoreflect.ValueOfBool(true))
		case protoreflect.Int64Kind:
			in.ProtoReflect().Set(f, protoreflect.ValueOfInt64(7))
		case protoreflect.Int32Kind:
			in.ProtoReflect().Set(f, protoreflect.ValueOfInt32(7))
		case protoreflect.EnumKind:
			in.ProtoReflect().Set(f, protoreflect.ValueOfEnum(2))
		default:
			t.Fatalf("%s: is a %v, which this test does not know", f.Name(), f.Kind())
		}
		changed[string(f.Name())] = differing(notation.ReadLimit(&penstockv1.InlineLimit{}),
			notation.ReadLimit(in))
	}
	checkInline(t, "gRPC", changed)
}

// TestInlineEnums: each name of an enum of the wire is the value of the same name here, and one
// that is unknown stays so.
func TestInlineEnums(t *testing.T) {
	for i, want := range []limiter.Calendar{
		0, limiter.Minutes, limiter.Hours, limiter.Days,
		limiter.Weeks, limiter.Months, limiter.Years,
	} {
		if got := notation.ReadLimit(&penstockv1.InlineLimit{
			Calendar: penstockv1.Calendar(i),
		}).Calendar; got != want {
			t.Errorf("%v is %v", penstockv1.Calendar(i), got)
		}
	}
	s := notation.ReadLimit(&penstockv1.InlineLimit{
		Consistency: penstockv1.Consistency_CONSISTENCY_REPLICATED,
		OnPartition: penstockv1.OnPartition_ON_PARTITION_OPEN,
		OnDeny:      penstockv1.OnDeny_ON_DENY_SHADOW, OnError: penstockv1.OnError_ON_ERROR_ALLOW,
	})
	if s.Consistency != limiter.Replicated || s.OnPartition != limiter.PartitionOpen ||
		s.OnDeny != limiter.DenyShadow || s.OnError != limiter.ErrorAllow {
		t.Errorf("%+v", s)
	}
	for _, in := range []*penstockv1.InlineLimit{
		{Calendar: 7},
		{Calendar: -1},
		{Consistency: 4},
		{Consistency: 300},
		{OnPartition: 4},
		{OnPartition: -1},
		{OnDeny: 6},
		{OnDeny: 257},
		{Unsettled: 3},
		{OnError: 4},
		{OnError: -9},
		{Anchor: 3},
	} {
		in.Name, in.Algorithm, in.Limit, in.PerMs = "x",
			penstockv1.Algorithm_ALGORITHM_FIXED_WINDOW, 1, 1000
		if _, err := limiter.New(notation.ReadLimit(in)); err == nil {
			t.Errorf("%v was accepted", in)
		}
	}
}

// TestInlineFieldsOfJSON holds the inline limits of POST /v1/check and limiter.Spec together.
func TestInlineFieldsOfJSON(t *testing.T) {
	base := notation.LimitJSON{Algorithm: "fixed_window", Limit: new(int64), Per: "1m"}
	plain, err := base.Spec()
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"algorithm": "gcra", "per": "month", "anchor": "first_hit", "on_error": "deny",
		"min_gap": "2s", "consistency": "replicated",
		"replication": "sync", "on_partition": "open", "on_deny": "shadow", "unsettled": "release",
		"spread": "7%", "max_delay": "2s",
	}
	changed := map[string][]string{}
	kind := reflect.TypeFor[notation.LimitJSON]()
	for i := range kind.NumField() {
		name := firstWord(kind.Field(i).Tag.Get("json"))
		in := base
		switch f := reflect.ValueOf(&in).Elem().Field(i); f.Kind() {
		case reflect.String:
			text := texts[name]
			if text == "" {
				text = "x"
			}
			f.SetString(text)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
			f.Elem().SetInt(7)
		default:
			f.SetInt(7)
		}
		s, err := in.Spec()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		changed[name] = differing(plain, s)
	}
	checkInline(t, "JSON", changed)

	for _, in := range []notation.LimitJSON{
		{OnError: "x"},
		{Consistency: "x"},
		{Replication: "x"},
		{OnPartition: "x"},
		{OnDeny: "x"},
		{Unsettled: "x"},
		{Anchor: "x"},
	} {
		in.Algorithm, in.Per = "gcra", "1m"
		if _, err := in.Spec(); err == nil ||
			!strings.Contains(err.Error(), "is unknown; there is: ") {
			t.Errorf("%+v: %v", in, err)
		}
	}
}

// TestInlineBadInput: both doors refuse a bad limit with the name of the field, what it was and
// what is accepted.
func TestInlineBadInput(t *testing.T) {
	h := web.New(web.Config{Node: rpctest.Alone(t)})
	s := &rateLimiter{node: rpctest.Alone(t), clock: clock.New(), inlines: new(door.Inlines)}
	const fixed = `"algorithm":"fixed_window","limit":1,"per":"1m"`
	for _, c := range []struct {
		json, want string
		grpc       *penstockv1.InlineLimit
	}{
		{
			`"algorithm":"gcra","limit":0,"per":"1m"`,
			"limit: is 0; 1 to 1099511627776 are accepted",
			&penstockv1.InlineLimit{Algorithm: 1, PerMs: 60_000},
		},
		{
			`"algorithm":"gcra","limit":-5,"per":"1m"`,
			"limit: is -5; 1 to 1099511627776 are accepted",
			&penstockv1.InlineLimit{Algorithm: 1, Limit: -5, PerMs: 60_000},
		},
		{
			`"algorithm":"gcra","limit":1,"per":"0s"`, "per: is 0s; 1ms to 8784h0m0s are accepted",
			&penstockv1.InlineLimit{Algorithm: 1, Limit: 1},
		},
		{
			`"algorithm":"sliding_counter","limit":1,"per":"30ms","buckets":31`,
			"buckets: 31 do not divide 30ms into equal parts of at least 1ms; divisors from 1 " +
				"to 30 are accepted",
			&penstockv1.InlineLimit{Algorithm: 7, Limit: 1, PerMs: 30, Buckets: 31},
		},
		{
			`"algorithm":"gcra","limit":1,"per":"366d","burst":1000`,
			"burst/limit×per must be at most 2^61 ns",
			&penstockv1.InlineLimit{
				Algorithm: 1, Limit: 1, PerMs: limiter.MaxPer.Milliseconds(),
				Burst: 1000,
			},
		},
		{
			`"algorithm":"gcra","limit":1,"per":"1s","burst":9000000000000000000`,
			"burst: is 9000000000000000000; 1 to 1099511627776 are accepted",
			&penstockv1.InlineLimit{Algorithm: 1, Limit: 1, PerMs: 1000, Burst: 9e18},
		},
		{
			`"algorithm":"fixed_window","limit":1,"per":"day","time_zone":"Mars/Olympus"`,
			`time_zone: "Mars/Olympus" is unknown; names of the IANA database are accepted`,
			&penstockv1.InlineLimit{
				Algorithm: 2, Limit: 1,
				Calendar: penstockv1.Calendar_CALENDAR_DAY, TimeZone: "Mars/Olympus",
			},
		},
		{
			fixed + `,"max_debt":-1`, "max_debt: is -1; 0 to 1099511627776 are accepted",
			&penstockv1.InlineLimit{Algorithm: 2, Limit: 1, PerMs: 1000, MaxDebt: -1},
		},
		{`"limit":1,"per":"1m"`, "algorithm: ", &penstockv1.InlineLimit{Limit: 1, PerMs: 1000}},
	} {
		answer, body := rpctest.Page(h, "POST", "/v1/check",
			`{"items":[{"inline":{`+c.json+`},"key":"k"}]}`)
		var p struct{ Detail string }
		if err := json.Unmarshal([]byte(body), &p); err != nil || answer.StatusCode != 400 ||
			!strings.HasPrefix(p.Detail, "items[0].inline.") ||
			!strings.Contains(p.Detail, c.want) {
			t.Errorf("JSON %s: %s, want … %s", c.json, body, c.want)
		}
		_, err := s.Check(t.Context(),
			&penstockv1.CheckRequest{Items: []*penstockv1.Item{{Inline: c.grpc, Key: []byte("k")}}})
		if status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "items[0].inline.") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("gRPC %v: %v, want … %s", c.grpc, err, c.want)
		}
	}
}

// TestDoorsSayOverrides: which override decided, and that a key began anew; but not of limits that
// have no name of their own, of which none takes the place of another.
func TestDoorsSayOverrides(t *testing.T) {
	node := rpctest.Alone(t)
	demo, err := limiter.New(rpctest.PerHour, limiter.Override{Key: "plan:pro/*", Limit: 50},
		limiter.Override{Key: "10.0.0.0/8", Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	node.SetLimits(cluster.Limits{"demo": demo})
	h := web.New(web.Config{Node: node})
	s := &rateLimiter{node: node, clock: clock.New(), inlines: new(door.Inlines)}
	ask := func(items ...*penstockv1.Item) []*penstockv1.Decision {
		t.Helper()
		out, err := s.Check(t.Context(), &penstockv1.CheckRequest{Items: items})
		if err != nil {
			t.Fatal(err)
		}
		return out.Decisions
	}

	_, body := rpctest.Page(h, "GET", "/v1/check?limit=demo&key=plan:pro/alice", "")
	if !strings.Contains(body, `"limit":50,"remaining":49`) ||
		!strings.Contains(body, `"override":"plan:pro/*"`) {
		t.Errorf("JSON: %s", body)
	}
	_, body = rpctest.Page(h, "GET", "/v1/check?limit=demo&key=bob", "")
	if strings.Contains(body, "override") || strings.Contains(body, "restarted") {
		t.Errorf("JSON, without: %s", body)
	}
	d := ask(rpctest.Item("demo", "10.1.2.3", 1), rpctest.Item("demo", "plan:pro/alice", 1),
		rpctest.Item("demo", "bob", 1))
	if !d[0].Allowed || d[0].Limit != limiter.MaxLimit || d[0].Override != "10.0.0.0/8" ||
		d[1].Remaining != 48 || d[1].Override != "plan:pro/*" || d[2].Limit != 5 ||
		d[2].Override != "" {
		t.Errorf("gRPC: %v", d)
	}

	changed := rpctest.PerHour
	changed.Algorithm, changed.Anchor = limiter.GCRA, limiter.Epoch
	l, err := limiter.New(changed)
	if err != nil {
		t.Fatal(err)
	}
	node.SetLimits(cluster.Limits{"demo": l})
	if _, body := rpctest.Page(h, "GET", "/v1/peek?limit=demo&key=bob", ""); !strings.Contains(body,
		`"restarted":true`) {
		t.Errorf("JSON: %s", body)
	}
	if d := ask(&penstockv1.Item{Limit: "demo", Key: []byte("bob")}); !d[0].Restarted ||
		d[0].Remaining != 4 {
		t.Errorf("gRPC: %v", d)
	}
	for i, name := range []string{"mine", "mine", "", ""} {
		in := rpctest.Inline(func(in *penstockv1.InlineLimit) {
			in.Name, in.PerMs = name, 60_000<<(i%2)
		})
		if d := ask(&penstockv1.Item{Inline: in, Key: []byte("bob")}); d[0].Restarted != (i == 1) {
			t.Errorf("inline %d: %v", i, d)
		}
	}
}

// firstWord is the name in a tag for JSON.
func firstWord(tag string) string {
	name, _, _ := strings.Cut(tag, ",")
	return name
}
