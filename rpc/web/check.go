package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
	"penstock/rpc/admin"
	"penstock/rpc/audit"
	"penstock/rpc/door"
	"penstock/rpc/page"
	"penstock/rpc/trace"
)

// checks are the pages that ask the node to decide: each decodes, asks, and encodes.
type checks struct {
	node    *cluster.Node
	inlines *door.Inlines
	proxies proxies
	trace   *trace.Tracer
	audit   *audit.Log
}

// DecisionJSON is a decision as HTTP shows it. Numbers are numbers; -1 is never, or for bound:
// without bound.
type DecisionJSON struct {
	Allowed      bool   `json:"allowed"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMs int64  `json:"retry_after_ms"`
	ResetAfterMs int64  `json:"reset_after_ms"`
	DelayMs      int64  `json:"delay_ms"`
	Name         string `json:"name"` // of the limit
	Owner        string `json:"owner"`
	Source       string `json:"source"`
	Degraded     bool   `json:"degraded"`
	Bound        int64  `json:"bound"` // 0 unless degraded
	Shadow       bool   `json:"shadow"`
	Drained      int64  `json:"drained,omitempty"`
	SessionMs    int64  `json:"session_ms,omitempty"`
	Restarted    bool   `json:"restarted,omitempty"`
	Override     string `json:"override,omitempty"`

	Tag    string      `json:"tag,omitempty"`
	Tier   int         `json:"tier,omitempty"`
	Denial *denialJSON `json:"denial,omitempty"`
}

// denialJSON is what a server is to answer to a denied request.
type denialJSON struct {
	Status      int    `json:"status,omitempty"` // 0: the server's own
	ContentType string `json:"content_type,omitempty"`
	Body        string `json:"body,omitempty"` // empty: the server's own
}

func newDenialJSON(d *cluster.Decision) *denialJSON {
	said := d.Said()
	if said.Status == 0 && said.Body == "" {
		return nil
	}
	return &denialJSON{said.Status, said.ContentType, said.Body}
}

func newDecisionJSON(d *cluster.Decision) DecisionJSON {
	return DecisionJSON{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
		RetryAfterMs: door.Millis(d.Retry()), ResetAfterMs: door.Millis(d.ResetAfter),
		DelayMs: door.Millis(d.Delay),
		Name:    d.Rule.Name, Owner: d.Owner, Source: d.Source.String(),
		Degraded: d.Degraded, Bound: d.Bound, Shadow: d.Shadow,
		Drained: d.Drained, SessionMs: int64(d.Session),
		Restarted: door.Restarted(d), Override: d.Rule.Override,
		Tag: d.Tag(), Tier: d.Tier(), Denial: newDenialJSON(d),
	}
}

// checkQuery is GET /v1/check?limit=&key=&cost=: one item, answered by status, headers and body.
func (c *checks) checkQuery(rw http.ResponseWriter, r *http.Request) {
	item, style, err := queryItem(r, cluster.OpTake)
	if err != nil {
		page.Error(rw, err)
		return
	}
	c.answer(rw, r, item, style)
}

// answerStyle is how one item is answered.
type answerStyle struct {
	headers headerForms
	denied  int    // status of a denial
	text    string // body of a denial; empty: a problem with the decision
	kind    string // media type of text
	// handedOn: a proxy hands the denial on to its client. Where the question does not say what
	// that looks like, the limit does. chosen: the question says the status
	handedOn, chosen bool
}

// as is s where a limit has something to say.
func (s answerStyle) as(said limiter.Answers) answerStyle {
	if !s.handedOn {
		return s
	}
	if said.Status != 0 && !s.chosen {
		s.denied = said.Status
	}
	if said.Body != "" && s.text == "" {
		s.text, s.kind = said.Body, said.ContentType
	}
	return s
}

// answer decides one item and says so by status, headers and body.
func (c *checks) answer(rw http.ResponseWriter, r *http.Request, item cluster.Item,
	style answerStyle,
) {
	out, err := c.decide(r, item)
	if err != nil {
		page.Error(rw, ofQuery(err))
		return
	}
	setRateLimit(rw.Header(), &out, style.headers)
	body := newDecisionJSON(&out)
	style = style.as(out.Said())
	switch {
	case out.Allowed:
		page.JSON(rw, http.StatusOK, body)
	case style.text != "":
		writeText(rw, style)
	default:
		page.ProblemJSON(rw, style.denied, exceeded{
			exceededProblem(style.denied, denialText(&out)),
			[]string{out.Rule.Name},
			body,
		})
	}
}

// writeText is a denial in the words of the question, or of the limit.
func writeText(rw http.ResponseWriter, style answerStyle) {
	rw.Header().Set("Content-Type", cmp.Or(style.kind, "text/plain; charset=utf-8"))
	// it is of the question, and a browser may have asked
	rw.Header().Set("X-Content-Type-Options", "nosniff")
	page.Text(rw, style.denied, style.text)
}

func denialText(d *cluster.Decision) string {
	if d.RetryAfter < 0 {
		return fmt.Sprintf("limit %q never admits that much at once; it is %d", d.Rule.Name,
			d.Limit)
	}
	return fmt.Sprintf("limit %q admits this again in %d ms", d.Rule.Name,
		door.Millis(d.RetryAfter))
}

// decide asks the node about one item.
func (c *checks) decide(r *http.Request, item cluster.Item) (cluster.Decision, error) {
	var out [1]cluster.Decision
	err := c.charge(r, &cluster.Request{Items: []cluster.Item{item}}, out[:])
	return out[0], err
}

// charge asks the node for request, if the client of r may ask for it.
func (c *checks) charge(r *http.Request, request *cluster.Request, out []cluster.Decision) error {
	if door.GivesBack(request.Items) {
		return c.change(r, request, out)
	}
	if err := door.Permit(access.Of(r.Context()), request); err != nil {
		return err
	}
	return c.trace.CheckHTTP(c.node, r.Header, request, out)
}

// decider is the node, which decides on r in a span if there are spans.
func (c *checks) decider(r *http.Request) door.Decider { return c.trace.HTTP(c.node, r.Header) }

// change is charge for resets and refunds, which are recorded. It decides on a copy: request may
// lie on the stack, where charges that are not recorded leave it.
func (c *checks) change(r *http.Request, request *cluster.Request, out []cluster.Decision) error {
	rec := recorderOf(c.audit, r)
	if err := door.Permit(rec.Who, request); err != nil {
		return err
	}
	own := cluster.Request{Items: slices.Clone(request.Items), Atomic: request.Atomic}
	return rec.Check(c.decider(r), &own, out)
}

// peekQuery is GET /v1/peek: the decision that a check would get. Always 200, nothing changes.
func (c *checks) peekQuery(rw http.ResponseWriter, r *http.Request) (any, error) {
	item, style, err := queryItem(r, cluster.OpPeek)
	if err != nil {
		return nil, err
	}
	out, err := c.decide(r, item)
	if err != nil {
		return nil, ofQuery(err)
	}
	setRateLimit(rw.Header(), &out, style.headers)
	return newDecisionJSON(&out), nil
}

// queryItem reads the item of a query, and how to answer it.
func queryItem(r *http.Request, op cluster.Op) (cluster.Item, answerStyle, error) {
	q, err := readQuery(r, "limit", "key", "cost", "report", "drain", "strict", "at_ms",
		"max_delay_ms", "plan", "headers")
	if err != nil {
		return cluster.Item{}, answerStyle{}, err
	}
	return readItem(q, op)
}

// readItem makes an item of the parameters of a query. A cost that is not given is 1, and 0 for a
// peek: the state as it is.
func readItem(
	q map[string]string, op cluster.Op,
) (item cluster.Item, style answerStyle, err error) {
	item = cluster.Item{Limit: q["limit"], Key: q["key"], Plan: q["plan"], Op: op}
	style.denied = http.StatusTooManyRequests
	if op == cluster.OpTake {
		item.Cost = 1
	}
	cost, err := readNumber(q, "cost")
	if err != nil {
		return item, style, err
	}
	if cost != nil {
		item.Cost = *cost
	}
	if item.Terms, err = readQueryTerms(q); err != nil {
		return item, style, err
	}
	style.headers, err = readForms(q["headers"])
	return item, style, err
}

// readQueryTerms are what a query asks for besides a cost.
func readQueryTerms(q map[string]string) (none cluster.Terms, err error) {
	flags := [3]bool{}
	for i, name := range []string{"report", "drain", "strict"} {
		switch said, given := q[name]; {
		case !given, said == "false":
		case said == "true":
			flags[i] = true
		default:
			return none, queryFault(name, "%.40q is neither true nor false", said)
		}
	}
	at, err := readNumber(q, "at_ms")
	if err != nil {
		return none, err
	}
	longest, err := readNumber(q, "max_delay_ms")
	if err != nil {
		return none, err
	}
	terms, err := door.ReadTerms(0, door.Terms{
		Report: flags[0], Drain: flags[1], Strict: flags[2], AtMs: at, MaxDelayMs: longest,
	})
	return terms, ofQuery(err)
}

// readNumber is a parameter with a number; nil if it is not given.
func readNumber(q map[string]string, name string) (*int64, error) {
	text, given := q[name]
	if !given {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, queryFault(name, "%.40q is not a whole number of 64 bits", text)
	}
	return &n, nil
}

// readQuery reads the parameters of a query, each given at most once. A parameter with another name
// is an error: a typing mistake must not become a default.
func readQuery(r *http.Request, names ...string) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, queryFault("query", "cannot be read: %v", err)
	}
	q := make(map[string]string, len(values))
	for _, name := range names {
		if v, given := values[name]; given {
			if len(v) > 1 {
				return nil, queryFault(name, "is given %d times", len(v))
			}
			q[name] = v[0]
			delete(values, name)
		}
	}
	for name := range values {
		return nil, queryFault("query", "%.40q is unknown; there is: %s", name,
			strings.Join(names, ", "))
	}
	return q, nil
}

// queryFault is the refusal of a value of a query.
func queryFault(field, format string, a ...any) error {
	return refusal(http.StatusBadRequest, field, format, a...)
}

func refusal(status int, field, format string, a ...any) error {
	return &door.Fault{Status: status, Field: field, Text: field + ": " + fmt.Sprintf(format, a...)}
}

// answeredBody is answered for a page that is asked by its body alone. What stands in its query
// would not be read: a cost there would become 1.
func answeredBody(h func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return answered(func(rw http.ResponseWriter, r *http.Request) (any, error) {
		if r.URL.RawQuery != "" {
			return nil, queryFault("query", "%.40q is not read here; write it in the body",
				r.URL.RawQuery)
		}
		return h(rw, r)
	})
}

// countedQuery is readQuery for a query that may have a count.
func countedQuery(
	r *http.Request, usual int, names ...string,
) (q map[string]string, count int, err error) {
	q, err = readQuery(r, names...)
	text, given := q["count"]
	if err != nil || !given {
		return q, usual, err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 || n > admin.MaxListed {
		return q, 0, queryFault("count", "%.40q is not a number from 1 to %d", text,
			admin.MaxListed)
	}
	return q, int(n), nil
}

// answered is a page that answers with JSON, or with what is wrong.
func answered(h func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		v, err := h(rw, r)
		if err != nil {
			page.Fault(rw, bodyFault(err))
			return
		}
		page.JSON(rw, http.StatusOK, v)
	}
}
