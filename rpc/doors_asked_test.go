package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"penstock/limiter"
	pb "penstock/proto/gubernator"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/rpctest"
)

// This file has the limits of FuzzDoorRequests, and how each door is asked about them.

// meter is a limit, in the words of each door.
type meter struct {
	spec    *limiter.Spec // of the node; nil: it comes along
	text    string        // then that, in JSON
	inline  *penstockv1.InlineLimit
	command string // the Redis protocol's: its words before the key, and after it
	rest    string
	stated  *pb.RateLimitReq // Gubernator's
	before  string           // begins all its keys: Envoy's
	most    int64            // units at once
	drains  bool
	fresh   func() counter
	bound   bound // without what credits allow
}

// name is what the limit is called in a failure.
func (m *meter) name() string {
	if m.spec != nil {
		return m.spec.Name
	}
	return m.text
}

const (
	second = int64(time.Second)
	minute = 60 * second
)

func named(s limiter.Spec, fresh func() counter, span, most int64) *meter {
	at := s.Limit
	if s.Burst != 0 {
		at = s.Burst
	}
	return &meter{spec: &s, most: at, fresh: fresh, bound: bound{span: span, most: most}}
}

var meters = []*meter{
	named(limiter.Spec{
		Name: "fixed", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 5,
		Per: 10 * time.Second,
	}, func() counter { return &windowed{limit: 5, per: 10 * second} }, 10*second, 10),
	named(limiter.Spec{
		Name: "sliding", Algorithm: limiter.SlidingWindow, Limit: 5, Per: 10 * time.Second,
	}, func() counter { return &weighted{limit: 5, per: 10 * second} }, 10*second, 10),
	named(limiter.Spec{
		Name: "log", Algorithm: limiter.SlidingLog, Limit: 4, Per: 10 * time.Second,
	}, func() counter { return &listed{limit: 4, per: 10 * second} }, 10*second, 4),
	named(limiter.Spec{
		Name: "bucket", Algorithm: limiter.TokenBucket, Limit: 6, Refill: 2, Per: 2 * time.Second,
	}, func() counter { return &stepped{limit: 6, refill: 2, per: 2 * second} }, 2*second, 8),
	named(limiter.Spec{
		Name: "gcra", Algorithm: limiter.GCRA, Limit: 5, Per: 5 * time.Second, Burst: 7,
	}, func() counter { return &poured{limit: 7, interval: second} }, 5*second, 12),
	{
		text: `{"name":"cl.throttle","algorithm":"gcra","limit":2,"per":"4s","burst":4}`,
		inline: &penstockv1.InlineLimit{
			Name: "cl.throttle", Algorithm: penstockv1.Algorithm_ALGORITHM_GCRA, Limit: 2,
			PerMs: 4000, Burst: 4,
		},
		command: "CL.THROTTLE", rest: "3 2 4", most: 4,
		fresh: func() counter { return &poured{limit: 4, interval: 2 * second} },
		bound: bound{span: 4 * second, most: 6},
	},
	{
		text: `{"algorithm":"token_bucket","client_time":true,"limit":5,"per":"3s","refill":2}`,
		inline: &penstockv1.InlineLimit{
			Algorithm: penstockv1.Algorithm_ALGORITHM_TOKEN_BUCKET, Limit: 5, PerMs: 3000,
			Refill: 2, ClientTime: true,
		},
		command: "RL.REDUCE", rest: "5 3 REFILL 2 TAKE", most: 5,
		fresh: func() counter {
			return &stepped{limit: 5, refill: 2, per: 3 * second, tick: int64(time.Millisecond)}
		},
		bound: bound{span: 3 * second, most: 7},
	},
	{
		text: `{"name":"envoy/d","algorithm":"fixed_window","limit":6,"per":"1m",` +
			`"anchor":"epoch","drain":true}`,
		inline: &penstockv1.InlineLimit{
			Name: "envoy/d", Algorithm: penstockv1.Algorithm_ALGORITHM_FIXED_WINDOW, Limit: 6,
			PerMs: 60000, Anchor: penstockv1.Anchor_ANCHOR_EPOCH, Drain: true,
		},
		before: "user=", most: 6, drains: true,
		fresh: func() counter {
			return &windowed{limit: 6, per: minute, aligned: true, drains: true}
		},
		bound: bound{span: minute, most: 12},
	},
	{
		text: `{"name":"window","algorithm":"stated_window","limit":5,"per":"10s"}`,
		inline: &penstockv1.InlineLimit{
			Name: "window", Algorithm: penstockv1.Algorithm_ALGORITHM_STATED_WINDOW, Limit: 5,
			PerMs: 10000,
		},
		stated: &pb.RateLimitReq{Name: "window", Limit: 5, Duration: 10000}, most: 5,
		fresh: func() counter { return &windowed{limit: 5, per: 10 * second, credits: true} },
	},
	{
		text: `{"name":"leak","algorithm":"stated_bucket","limit":4,"per":"8s"}`,
		inline: &penstockv1.InlineLimit{
			Name: "leak", Algorithm: penstockv1.Algorithm_ALGORITHM_STATED_BUCKET, Limit: 4,
			PerMs: 8000,
		},
		stated: &pb.RateLimitReq{
			Name: "leak", Limit: 4, Duration: 8000, Algorithm: pb.Algorithm_LEAKY_BUCKET,
		},
		most: 4, fresh: func() counter { return &poured{limit: 4, interval: 2 * second} },
		bound: bound{span: 8 * second, most: 8},
	},
}

// op is what is asked.
type op int

const (
	opTake op = iota
	opLook
	opReset
)

// wrong is what is wrong with a request.
type wrong int

const (
	wrongNothing wrong = iota
	wrongCost          // the text of a number that is none, or too large
	wrongLimit
	wrongEmptyKey
	wrongLongKey
	wrongs
)

// asking is an item of a request.
type asking struct {
	asked
	meter    *meter
	of       string // the key
	op       op
	named    bool   // it has an id where the way has ids
	sequence uint64 // of the id; 0: it has none
	wrong    wrong
	text     string // of a cost that is wrong
}

// number is the cost as it is written.
func (a *asking) number() string {
	if a.wrong == wrongCost {
		return a.text
	}
	return strconv.FormatInt(a.cost, 10)
}

var longKey = strings.Repeat("x", 1025)

func (a *asking) key() string {
	switch a.wrong {
	case wrongEmptyKey:
		return ""
	case wrongLongKey:
		return longKey
	}
	return a.of
}

// limit is the name of the limit; empty: it comes along.
func (a *asking) limit() string {
	switch {
	case a.wrong == wrongLimit:
		return "nobody"
	case a.meter.spec != nil:
		return a.meter.spec.Name
	}
	return ""
}

// reply is what a door says of an item.
type reply struct {
	fault    bool // it was in error
	told          // …, of which is known:
	knows    knowledge
	most     int64
	degraded bool
	hold     string
}

// knowledge is what a door tells of a decision.
type knowledge int

const (
	knowsAllowed knowledge = 1 << iota
	knowsLeft
	knowsBefore
	knowsMost
	knowsAll = knowsAllowed | knowsLeft | knowsMost
)

// way is a way to ask: a door, and a page or a method of it.
type way struct {
	name  string
	can   func(a *asking) bool
	lists bool // several items in one request
	each  bool // an item that is wrong is answered by itself
	// closed: the beginning of a request is none
	closed bool
	write  func(list []asking, atomic bool) []byte
	// send returns nothing if all was refused. An error is a fault of the door.
	send func(h *house, op op, b []byte) ([]reply, error)
}

var doorWays = []*way{
	{
		"HTTP query", func(a *asking) bool { return a.meter.spec != nil && a.op != opReset },
		false, false, false, writeQuery, sendQuery,
	},
	{
		"HTTP body", func(a *asking) bool { return a.op != opLook || a.cost == 0 }, true, false,
		true, writeBody, sendBody,
	},
	{
		"HTTP auth", func(a *asking) bool {
			return a.meter.spec != nil && a.op == opTake && !a.drain && !a.report
		}, false, false, false, writeQuery, func(h *house, _ op, b []byte) ([]reply, error) {
			return readPage(h.ask(http.MethodGet, "/v1/auth", b))
		},
	},
	{"gRPC", func(*asking) bool { return true }, true, false, false, writeCheck, sendCheck},
	{
		"gRPC stream", func(a *asking) bool { return a.op == opTake }, true, false,
		false, writeStream, sendStream,
	},
	{"Gubernator", canGubernator, true, true, false, writeGubernator, sendGubernator},
	{"Gubernator JSON", canGubernator, true, true, true, writeGubernatorJSON, sendGubernatorJSON},
	{"Redis", canRedis, true, true, true, writeRedis, sendRedis},
	{"Envoy", canEnvoy, true, false, false, writeEnvoy, sendEnvoy},
	{"Envoy JSON", canEnvoy, true, false, true, writeEnvoyJSON, sendEnvoyJSON},
}

func writeQuery(list []asking, _ bool) []byte {
	a := &list[0]
	b := []byte("limit=" + a.limit() + "&key=" + a.key() + "&cost=" + a.number())
	if a.drain {
		b = append(b, "&drain=true"...)
	}
	if a.report {
		b = append(b, "&report=true"...)
	}
	return b
}

func sendQuery(h *house, op op, b []byte) ([]reply, error) {
	path := "/v1/check"
	if op == opLook {
		path = "/v1/peek"
	}
	return readPage(h.ask(http.MethodGet, path, b))
}

// decisionText is an answer in JSON: one decision, or several, or holds.
type decisionText struct {
	Allowed          bool
	Remaining, Limit int64
	Degraded         bool
	ID               string
	Decisions, Holds []decisionText
}

func (d *decisionText) reply() reply {
	return reply{
		told: told{allowed: d.Allowed, left: d.Remaining}, knows: knowsAll, most: d.Limit,
		degraded: d.Degraded, hold: d.ID,
	}
}

// readText reads an answer in JSON. One with a status that says that all was refused is no answer.
func readText(status int, text []byte, into any) (refused bool, err error) {
	switch status {
	case http.StatusOK, http.StatusTooManyRequests:
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
		refused = true
	default:
		return false, fmt.Errorf("status %d: %s", status, text)
	}
	if !json.Valid(text) {
		return false, fmt.Errorf("no JSON: %q", text)
	}
	if !refused {
		err = json.Unmarshal(text, into)
	}
	return refused, err
}

func readPage(status int, text []byte) ([]reply, error) {
	var d decisionText
	refused, err := readText(status, text, &d)
	if refused || err != nil {
		return nil, err
	}
	if list := append(d.Decisions, d.Holds...); len(list) > 0 {
		replies := make([]reply, len(list))
		for i := range list {
			replies[i] = list[i].reply()
		}
		return replies, nil
	}
	return []reply{d.reply()}, nil
}

func writeBody(list []asking, atomic bool) []byte {
	b := fmt.Appendf(nil, `{"atomic":%v,"items":[`, atomic)
	for i := range list {
		a := &list[i]
		if i > 0 {
			b = append(b, ',')
		}
		if limit := a.limit(); limit != "" {
			b = fmt.Appendf(b, `{"limit":%q`, limit)
		} else {
			b = append(append(b, `{"inline":`...), a.meter.text...)
		}
		b = append(append(append(b, `,"key":"`...), a.key()...), `","cost":`...)
		b = append(b, a.number()...)
		if a.drain {
			b = append(b, `,"drain":true`...)
		}
		if a.report {
			b = append(b, `,"report":true`...)
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

func sendBody(h *house, op op, b []byte) ([]reply, error) {
	path := "/v1/check"
	if op == opReset {
		path = "/v1/reset"
	}
	return readPage(h.ask(http.MethodPost, path, b))
}

// origin is of all ids.
const origin = 77

func check(list []asking, atomic bool) *penstockv1.CheckRequest {
	r := &penstockv1.CheckRequest{Atomic: atomic}
	for i := range list {
		a := &list[i]
		it := rpctest.Item(a.limit(), a.key(), a.cost)
		if it.Limit == "" {
			it.Inline = a.meter.inline
		}
		it.Drain, it.Report = a.drain, a.report
		switch {
		case a.wrong == wrongCost: // there is none: an id that no client has drawn
			it.Id = &penstockv1.RequestId{Sequence: 1}
		case a.sequence != 0:
			it.Id = &penstockv1.RequestId{Origin: origin, Sequence: a.sequence}
		}
		r.Items = append(r.Items, it)
	}
	return r
}

func marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // a text of this file is none
	}
	return b
}

// writeCheck writes items, which PeekRequest and ResetRequest have in the same place.
func writeCheck(list []asking, atomic bool) []byte { return marshal(check(list, atomic)) }

func writeStream(list []asking, atomic bool) []byte {
	return marshal(&penstockv1.CheckStreamRequest{Tag: 5, Check: check(list, atomic)})
}

// refusal is whether a call was refused for what its client has sent.
func refusal(err error) (refused bool, _ error) {
	switch status.Code(err) {
	case codes.OK:
		return false, nil
	case codes.InvalidArgument, codes.NotFound, codes.OutOfRange:
		return true, nil
	}
	if err == errDecode {
		return true, nil
	}
	return false, err
}

func decisions(list []*penstockv1.Decision) []reply {
	replies := make([]reply, len(list))
	for i, d := range list {
		replies[i] = decision(d)
	}
	return replies
}

func decision(d *penstockv1.Decision) reply {
	return reply{
		told: told{allowed: d.GetAllowed(), left: d.GetRemaining()}, knows: knowsAll,
		most: d.GetLimit(), degraded: d.GetDegraded(),
	}
}

func sendCheck(h *house, op op, b []byte) ([]reply, error) {
	method := [...]string{opTake: "Check", opLook: "Peek", opReset: "Reset"}[op]
	out, err := h.calls.call("penstock.v1.RateLimiter/"+method, b)
	if refused, err := refusal(err); refused || err != nil {
		return nil, err
	}
	switch out := out.(type) {
	case *penstockv1.PeekResponse:
		return decisions(out.Decisions), nil
	case *penstockv1.ResetResponse:
		return decisions(out.Decisions), nil
	}
	var in penstockv1.CheckResponse
	if err := proto.Unmarshal(out.([]byte), &in); err != nil {
		return nil, err
	}
	return decisions(in.Decisions), nil
}

func sendStream(h *house, _ op, b []byte) ([]reply, error) {
	out, err := h.calls.call("penstock.v1.RateLimiter/CheckStream", b)
	if refused, err := refusal(err); refused || err != nil {
		return nil, err
	}
	var in penstockv1.CheckStreamResponse
	if err := proto.Unmarshal(out.([]byte), &in); err != nil {
		return nil, err
	}
	if in.Error != nil {
		_, err := refusal(status.Error(codes.Code(in.Error.Code), in.Error.Message))
		return nil, err
	}
	return decisions(in.Check.GetDecisions()), nil
}

func canGubernator(a *asking) bool {
	return (a.meter.spec != nil || a.meter.stated != nil) && !a.report && a.op != opLook
}

func rateLimits(list []asking) *pb.GetRateLimitsReq {
	in := new(pb.GetRateLimitsReq)
	for i := range list {
		a := &list[i]
		r := &pb.RateLimitReq{Name: a.limit(), UniqueKey: a.key(), Hits: a.cost}
		if s := a.meter.stated; s != nil {
			r.Name, r.Limit, r.Duration, r.Algorithm = s.Name, s.Limit, s.Duration, s.Algorithm
		}
		if a.wrong == wrongLimit || a.wrong == wrongCost {
			r.Name = ""
		}
		if a.drain {
			r.Behavior |= pb.Behavior_DRAIN_OVER_LIMIT
		}
		if a.op == opReset {
			r.Behavior |= pb.Behavior_RESET_REMAINING
		}
		in.Requests = append(in.Requests, r)
	}
	return in
}

func writeGubernator(list []asking, _ bool) []byte { return marshal(rateLimits(list)) }

// writeGubernatorJSON writes hits as their text, as far as they are wrong.
func writeGubernatorJSON(list []asking, _ bool) []byte {
	b := []byte(`{"requests":[`)
	for i, r := range rateLimits(list).Requests {
		if i > 0 {
			b = append(b, ',')
		}
		hits := list[i].number()
		b = fmt.Appendf(b, `{"name":%q,"unique_key":%q,"hits":%s,"limit":%d,"duration":%d,`+
			`"algorithm":%d,"behavior":%d}`, r.Name, r.UniqueKey, hits, r.Limit, r.Duration,
			r.Algorithm, r.Behavior)
	}
	return append(b, "]}"...)
}

func rateLimited(in *pb.GetRateLimitsResp) []reply {
	replies := make([]reply, len(in.Responses))
	for i, r := range in.Responses {
		_, degraded := r.Metadata["degraded"]
		replies[i] = reply{
			told: told{allowed: r.Status == pb.Status_UNDER_LIMIT, left: r.Remaining},
			// its limit is that of the rate
			knows: knowsAllowed | knowsLeft, fault: r.Error != "", degraded: degraded,
		}
	}
	return replies
}

func sendGubernator(h *house, _ op, b []byte) ([]reply, error) {
	out, err := h.calls.call("pb.gubernator.V1/GetRateLimits", b)
	if refused, err := refusal(err); refused || err != nil {
		return nil, err
	}
	var in pb.GetRateLimitsResp
	if err := proto.Unmarshal(out.([]byte), &in); err != nil {
		return nil, err
	}
	return rateLimited(&in), nil
}

func sendGubernatorJSON(h *house, _ op, b []byte) ([]reply, error) {
	code, text := h.ask(http.MethodPost, "/v1/GetRateLimits", b)
	var ignored struct{}
	if refused, err := readText(code, text, &ignored); refused || err != nil {
		return nil, err
	}
	var in pb.GetRateLimitsResp
	if err := protojson.Unmarshal(text, &in); err != nil {
		return nil, err
	}
	return rateLimited(&in), nil
}

// canRedis: commands give nothing back but those of CL.THROTTLE, and those of RL.* drain.
func canRedis(a *asking) bool {
	switch {
	case a.meter.command == "" || a.report || a.op == opLook:
		return false
	case a.meter.command == "CL.THROTTLE":
		return !a.drain
	}
	return a.op == opTake && a.cost >= 0 && (a.drain || a.cost == 0)
}

func writeRedis(list []asking, atomic bool) []byte {
	var b bytes.Buffer
	if atomic { // EXEC does not undo: it is another way to send a list
		b.WriteString(rpctest.Command("MULTI"))
	}
	for i := range list {
		a := &list[i]
		if a.op == opReset {
			b.WriteString(rpctest.Command("DEL", a.key()))
			continue
		}
		words := append([]string{a.meter.command, a.key()}, strings.Fields(a.meter.rest)...)
		if a.wrong == wrongLimit {
			words[2] = "-1"
		}
		b.WriteString(rpctest.Command(append(words, a.number())...))
	}
	if atomic {
		b.WriteString(rpctest.Command("EXEC"))
	}
	return b.Bytes()
}

func sendRedis(h *house, _ op, b []byte) ([]reply, error) {
	var replies []reply
	out := h.commands.say(b)
	for rest := out; len(rest) > 0; {
		var err error
		if replies, rest, err = readReply(replies, rest); err != nil {
			return nil, fmt.Errorf("%q: %w", out, err)
		}
	}
	return replies, nil
}

// readReply reads a reply of the Redis protocol. Texts are no answers, and arrays are read through
// but for those of CL.THROTTLE.
func readReply(replies []reply, b []byte) (_ []reply, rest []byte, err error) {
	line, rest, found := bytes.Cut(b, []byte("\r\n"))
	if !found || len(line) == 0 {
		return nil, nil, fmt.Errorf("no end of a line")
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	switch line[0] {
	case '-':
		return append(replies, reply{fault: true}), rest, nil
	case '+':
		return replies, rest, nil
	case ':':
		return append(replies, reply{told: told{before: n}, knows: knowsBefore}), rest, err
	case '$':
		if err != nil || n < 0 || int64(len(rest)) < n+2 {
			return replies, rest, err
		}
		return append(replies, reply{}), rest[n+2:], nil
	case '*', '%':
	default:
		return nil, nil, fmt.Errorf("no type")
	}
	if line[0] == '%' {
		n *= 2
	}
	var five []reply
	for range n {
		if five, rest, err = readReply(five, rest); err != nil {
			return nil, nil, err
		}
	}
	if n == 5 && !five[0].fault && len(five) == 5 && five[4].knows == knowsBefore &&
		five[0].before <= 1 && five[1].before == meters[5].most {
		five = []reply{{
			told: told{allowed: five[0].before == 0, left: five[2].before}, knows: knowsAll,
			most: five[1].before,
		}}
	}
	return append(replies, five...), rest, nil
}

// canEnvoy: no key is wrong, since one that is long is shortened, and all begin with a name.
func canEnvoy(a *asking) bool {
	return a.meter.before != "" && a.op == opTake && !a.report && !a.drain &&
		a.wrong != wrongEmptyKey && a.wrong != wrongLongKey
}

// bytesField appends a field of protobuf: the messages of Envoy are no business of this room.
func bytesField(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

func numberField(b []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), value)
}

// hits are a cost without its sign.
func hits(cost int64) uint64 {
	if cost < 0 {
		return -uint64(cost)
	}
	return uint64(cost)
}

func domain(list []asking) string {
	for i := range list {
		if list[i].wrong == wrongLimit || list[i].wrong == wrongCost {
			return ""
		}
	}
	return "d"
}

func writeEnvoy(list []asking, _ bool) []byte {
	b := bytesField(nil, 1, []byte(domain(list)))
	for i := range list {
		a := &list[i]
		entry := bytesField(nil, 1, []byte("user"))
		entry = bytesField(entry, 2, []byte(strings.TrimPrefix(a.key(), "user=")))
		of := bytesField(nil, 1, entry)
		of = bytesField(of, 3, numberField(nil, 1, hits(a.cost)))
		if a.cost < 0 {
			of = numberField(of, 4, 1)
		}
		b = bytesField(b, 2, of)
	}
	return b
}

func writeEnvoyJSON(list []asking, _ bool) []byte {
	b := fmt.Appendf(nil, `{"domain":%q,"descriptors":[`, domain(list))
	for i := range list {
		a := &list[i]
		if i > 0 {
			b = append(b, ',')
		}
		text := strconv.FormatUint(hits(a.cost), 10)
		if a.wrong == wrongCost {
			text = a.text
		}
		b = fmt.Appendf(b, `{"entries":[{"key":"user","value":%q}],"hitsAddend":%s,`+
			`"isNegativeHits":%v}`, strings.TrimPrefix(a.key(), "user="), text, a.cost < 0)
	}
	return append(b, "]}"...)
}

// envoyText is the answer to an Envoy.
type envoyText struct {
	OverallCode string
	Statuses    []struct {
		Code           string
		LimitRemaining int64
		CurrentLimit   struct{ RequestsPerUnit int64 }
	}
}

func (e *envoyText) replies() ([]reply, error) {
	replies, over := make([]reply, len(e.Statuses)), false
	for i, s := range e.Statuses {
		replies[i] = reply{
			told: told{allowed: s.Code == "OK", left: s.LimitRemaining}, knows: knowsAll,
			most: s.CurrentLimit.RequestsPerUnit,
		}
		over = over || s.Code != "OK"
	}
	if over != (e.OverallCode == "OVER_LIMIT") {
		return nil, fmt.Errorf("not all statuses are as the whole: %+v", e)
	}
	return replies, nil
}

func sendEnvoy(h *house, _ op, b []byte) ([]reply, error) {
	out, err := h.calls.call("envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", b)
	if refused, err := refusal(err); refused || err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(out.(proto.Message))
	if err != nil {
		return nil, err
	}
	var e envoyText
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	return e.replies()
}

func sendEnvoyJSON(h *house, _ op, b []byte) ([]reply, error) {
	var e envoyText
	code, text := h.ask(http.MethodPost, "/json", b)
	if refused, err := readText(code, text, &e); refused || err != nil {
		return nil, err
	}
	if (code == http.StatusTooManyRequests) != (e.OverallCode == "OVER_LIMIT") {
		return nil, fmt.Errorf("status %d: %s", code, text)
	}
	return e.replies()
}
