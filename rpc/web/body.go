package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
	"penstock/rpc/door"
	"penstock/rpc/notation"
	"penstock/rpc/page"
)

// itemJSON is an item of a body.
type itemJSON struct {
	Limit  string              `json:"limit"`
	Inline *notation.LimitJSON `json:"inline"`
	Key    string              `json:"key"`
	Cost   *int64              `json:"cost"`
	Report bool                `json:"report"`
	Drain  bool                `json:"drain"`
	Strict bool                `json:"strict"`
	AtMs   *int64              `json:"at_ms"`

	MaxDelayMs *int64 `json:"max_delay_ms"`
	Plan       string `json:"plan"`
}

// bodyJSON is items, or the fields of one item, or attributes and a cost.
type bodyJSON struct {
	Items      []itemJSON        `json:"items"`
	Atomic     bool              `json:"atomic"`
	Attributes map[string]string `json:"attributes"`
	itemJSON
}

// DecisionsJSON answers a body. Allowed says that all items were. A body that was one item has its
// decision's fields here too, so that a client which only ever sends one need not look into a list.
type DecisionsJSON struct {
	Allowed bool `json:"allowed"`
	*DecisionJSON
	Decisions []DecisionJSON `json:"decisions"`
	// of an atomic request, or one with attributes
	Verdict *verdictJSON `json:"verdict,omitempty"`
}

func newDecisionsJSON(out []cluster.Decision) DecisionsJSON {
	answer := DecisionsJSON{Allowed: true, Decisions: make([]DecisionJSON, len(out))}
	for i := range out {
		answer.Decisions[i] = newDecisionJSON(&out[i])
		answer.Allowed = answer.Allowed && out[i].Allowed
	}
	return answer
}

func (c *checks) checkBody(rw http.ResponseWriter, r *http.Request) (any, error) {
	return c.body(rw, r, cluster.OpTake)
}

func (c *checks) resetBody(rw http.ResponseWriter, r *http.Request) (any, error) {
	return c.body(rw, r, cluster.OpReset)
}

// body is POST: any number of items, each answered with a decision, in order. The status is 200
// also if some or all are denied.
func (c *checks) body(rw http.ResponseWriter, r *http.Request, op cluster.Op) (any, error) {
	body, err := readJSON[bodyJSON](rw, r, bodyFields)
	switch {
	case err != nil:
		return nil, err
	case body.Attributes == nil:
		answer, single, err := c.itemsBody(r, &body, op)
		return answer, ofBody(err, single)
	case op == cluster.OpTake:
		return c.ruledBody(r, &body)
	}
	return nil, door.Wrong("attributes",
		"are for checks; name limit and key of what is to be reset")
}

// itemsBody answers a body with items. single says that it is one item and no list.
func (c *checks) itemsBody(r *http.Request, body *bodyJSON,
	op cluster.Op,
) (answer DecisionsJSON, single bool, err error) {
	request, single, err := c.request(r, body.Items, body.itemJSON, op)
	if err != nil {
		return answer, single, err
	}
	request.Atomic = body.Atomic
	out := make([]cluster.Decision, len(request.Items))
	if op == cluster.OpReset {
		err = c.change(r, request, out)
	} else {
		err = c.charge(r, request, out)
	}
	if err != nil {
		return answer, single, err
	}
	answer = newDecisionsJSON(out)
	if body.Atomic {
		answer.Verdict = newVerdictJSON(out)
	}
	if single {
		answer.DecisionJSON = &answer.Decisions[0]
	}
	return answer, single, nil
}

// request makes a request of a list of items, or of one that stands alone.
func (c *checks) request(r *http.Request, items []itemJSON, one itemJSON,
	op cluster.Op,
) (_ *cluster.Request, single bool, err error) {
	single = items == nil
	if single {
		if one == (itemJSON{}) {
			return nil, false, door.Wrong("items", "is missing; send "+
				"{\"items\":[{\"limit\":…,\"key\":…}]} or one item")
		}
		items = []itemJSON{one}
	} else if one != (itemJSON{}) {
		return nil, false, door.Wrong("items", "is given beside the "+
			"fields of an item; send one or the other")
	}
	if len(items) > cluster.MaxItems { // Node.Check refuses them, and need not see them for that
		return nil, false, door.Wrong("items", "has %d items; 1 to %d are accepted", len(items),
			cluster.MaxItems)
	}
	request := &cluster.Request{Items: make([]cluster.Item, len(items))}
	for i := range items {
		if request.Items[i], err = c.item(r, i, &items[i], op); err != nil {
			return nil, single, err
		}
	}
	return request, single, nil
}

// bodyFields is what a body of a check may have.
const bodyFields = "a body has items, atomic or the fields of one item, or attributes and cost; " +
	"an item has limit, inline, key, cost, report, drain, strict, at_ms, max_delay_ms, plan"

// readJSON reads the body of r. has says what it may have, for the error about something else.
func readJSON[T any](rw http.ResponseWriter, r *http.Request, has string) (body T, err error) {
	b, err := page.ReadBody(rw, r, maxBody)
	if err != nil {
		return body, err
	}
	return decodeJSON[T](b, has)
}

func decodeJSON[T any](b []byte, has string) (body T, err error) {
	outline, err := survey(b)
	if err != nil {
		return body, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return body, bodyError(err, b, outline, has)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return body, door.Wrong("body", "goes on after its end at byte %d", d.InputOffset())
	}
	return body, nil
}

// bodyError says in our words what encoding/json says in its.
func bodyError(err error, b []byte, outline *outline, has string) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind):
		field := cmp.Or(kind.Field, "body")
		if i := outline.item(kind.Offset); i >= 0 && (field == "items" ||
			strings.HasPrefix(field, "items.")) {
			field = fmt.Sprintf("items[%d]%s", i, field[len("items"):])
		}
		return door.Wrong(withoutStructs(field), "is %.60s (byte %d); %s is expected there",
			kind.Value, kind.Offset, jsonKind(kind.Type))
	case errors.As(err, &syntax):
		return door.Wrong("body", "is not JSON: %v (byte %d)", syntax, syntax.Offset)
	case errors.Is(err, io.EOF):
		return door.Wrong("body", "is empty; send JSON")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return door.Wrong("body", "is not JSON: it ends too early")
	}
	if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		place := placeOf(b, strings.Trim(name, `"`))
		if strings.Contains("."+place, ".inline.") {
			has = "an inline limit has " + notation.LimitFields()
		}
		return &cluster.InputError{Field: place, Reason: "is unknown; " + has}
	}
	return &cluster.InputError{Field: "body", Reason: strings.TrimPrefix(err.Error(), "json: ")}
}

// withoutStructs is the name of a field without those of the structs that it is embedded in, which
// encoding/json puts before it.
func withoutStructs(field string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(field, "."), func(name string) bool {
		return strings.HasSuffix(name, "JSON")
	}), ".")
}

// jsonKind is what JSON calls values of t.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "an array"
	case reflect.Int:
		return "a whole number"
	case reflect.Int64:
		return "a whole number of 64 bits"
	case reflect.Bool:
		return "true or false"
	}
	return "a " + t.Kind().String()
}

func (c *checks) item(r *http.Request, i int, in *itemJSON, op cluster.Op) (cluster.Item, error) {
	it := cluster.Item{Limit: in.Limit, Key: in.Key, Plan: in.Plan, Op: op}
	if op == cluster.OpTake {
		it.Cost = 1
	}
	if in.Cost != nil {
		it.Cost = *in.Cost
	}
	var err error
	if it.Terms, err = door.ReadTerms(i, door.Terms{
		Report: in.Report, Drain: in.Drain, Strict: in.Strict,
		AtMs: in.AtMs, MaxDelayMs: in.MaxDelayMs,
	}); err != nil || in.Inline == nil {
		return it, err
	}
	if in.Limit != "" {
		return it, door.Wrong(fmt.Sprintf("items[%d].limit", i),
			"is given together with inline; give one of the two")
	}
	spec, err := in.Inline.Spec()
	if err == nil {
		it.Inline, err = c.inline(r, spec, op)
	}
	if err != nil {
		return it, door.InlineError(i, err)
	}
	return it, nil
}

// inline is the limit that an item of r brings along.
func (c *checks) inline(r *http.Request, spec limiter.Spec, op cluster.Op) (*limiter.Limit, error) {
	if op == cluster.OpTake || op == cluster.OpReserve {
		return c.inlines.Bring(spec, c.proxies.caller(r))
	}
	return c.inlines.Get(spec, door.Caller{TLS: r.TLS, Pass: access.Of(r.Context())})
}
