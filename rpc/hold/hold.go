package hold

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
	"penstock/rpc/door"
	"penstock/rpc/peer"
	"penstock/rpc/wire"
)

// The id of a hold, as clients see it, says where the hold is: its limit and its key, beside 128
// random bits. So any node can send a settlement to the right one, and no node keeps a list of
// holds. It is protobuf in base64.
const (
	tokenOrigin, tokenSequence, tokenLimit, tokenInline, tokenKey = 1, 2, 3, 4, 5

	// maxToken is a little more than an id with the longest names has.
	maxToken = 4096
)

// Token is the id of the hold that was opened for it under an ID (cluster.Decision.ID).
func Token(it *cluster.Item, id cluster.ID) string {
	b := wire.AppendFixed(nil, tokenOrigin, id.Origin)
	b = wire.AppendFixed(b, tokenSequence, id.Sequence)
	if it.Inline != nil {
		l := peer.AppendLimit(nil, it.Inline)
		b = append(wire.AppendHead(b, tokenInline, len(l)), l...)
	} else {
		b = wire.AppendString(b, tokenLimit, it.Limit)
	}
	return base64.RawURLEncoding.EncodeToString(wire.AppendString(b, tokenKey, it.Key))
}

// readToken makes an item about the hold of that id.
func readToken(token string, inlines *door.Inlines) (cluster.Item, error) {
	it := cluster.Item{Hold: new(cluster.HoldTerms)}
	if token == "" {
		return it, door.Wrong("id", "is missing; give the id that a reservation was answered with")
	}
	wrong := door.Wrong("id", "%.20q… is not the id of a hold, as a reservation is answered with",
		token)
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(token) > maxToken {
		return it, wrong
	}
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case tokenOrigin:
			it.Hold.ID.Origin = f.Value
		case tokenSequence:
			it.Hold.ID.Sequence = f.Value
		case tokenLimit:
			it.Limit = string(f.Bytes)
		case tokenInline:
			if it.Inline, err = tokenInlineLimit(f.Bytes, inlines); err != nil {
				return it, wrong
			}
		case tokenKey:
			it.Key = string(f.Bytes)
		}
	}
	if f.Err != nil || it.Key == "" || it.Hold.ID == (cluster.ID{}) ||
		(it.Limit == "") == (it.Inline == nil) {
		return it, wrong
	}
	return it, nil
}

func tokenInlineLimit(b []byte, inlines *door.Inlines) (*limiter.Limit, error) {
	f := wire.Fields{Rest: b}
	if !f.Next() || f.Num != peer.FrameLimits || f.Wire != protowire.BytesType {
		return nil, wire.ErrMessage
	}
	spec, err := peer.ReadSpec(f.Bytes)
	if err != nil {
		return nil, err
	}
	l, err := inlines.Known(spec)
	return l.OrNil(), err
}

// RandomID is an id that nobody can guess.
func RandomID() cluster.ID {
	var b [16]byte
	rand.Read(b[:]) // never fails: it would end the process
	return cluster.ID{
		Origin:   binary.LittleEndian.Uint64(b[:])>>1 | 1,
		Sequence: binary.LittleEndian.Uint64(b[8:]),
	}
}

// Reserve makes a reservation of items: all or none. It returns their ids, empty where nothing is
// set aside.
func Reserve(n door.Decider, who *access.Ticket, r *cluster.Request, out []cluster.Decision,
	terms *cluster.HoldTerms,
) (ids []string, allowed bool, err error) {
	r.Atomic = true
	for i := range r.Items {
		it := &r.Items[i]
		it.Op, it.Hold = cluster.OpReserve, terms
		if it.ID == (cluster.ID{}) {
			it.ID = RandomID()
		}
	}
	if err := door.Permit(who, r); err != nil {
		return nil, false, err
	}
	if err := n.Check(r, out); err != nil {
		return nil, false, ofTerms(err)
	}
	allowed = true
	for i := range out {
		if err := Refusal(cluster.OpReserve, &out[i]); err != nil {
			return nil, false, err
		}
		allowed = allowed && out[i].Allowed
	}
	ids = make([]string, len(out))
	for i := range out {
		if allowed && out[i].Hold == limiter.HoldOpen {
			ids[i] = Token(&r.Items[i], out[i].ID)
		}
	}
	return ids, allowed, nil
}

// ofTerms leaves the first item out of an error about terms, which are those of all items.
func ofTerms(err error) error {
	var wrong *cluster.InputError
	if errors.As(err, &wrong) && (wrong.Field == "items[0].ttl_ms" ||
		wrong.Field == "items[0].holder") {
		return &cluster.InputError{Field: wrong.Field[len("items[0]."):], Reason: wrong.Reason}
	}
	return err
}

// SettleOrExtend settles or extends the hold of that id.
func SettleOrExtend(n *cluster.Node, rec door.Recorder, inlines *door.Inlines, id string,
	op cluster.Op,
	actual, ttlMs int64, holder string, deadline limiter.Instant,
) (d cluster.Decision, err error) {
	it, err := readToken(id, inlines)
	if err != nil {
		n.Stats().Refused.Add(1)
		return d, err
	}
	it.Op, it.Cost, it.Hold.TTL, it.Hold.Holder = op, actual, door.FromMillis(ttlMs), holder
	var out [1]cluster.Decision
	r := &cluster.Request{Items: []cluster.Item{it}, Deadline: deadline}
	if err := door.Permit(rec.Who, r); err != nil {
		return d, err
	}
	before := rec.BeforeHold(n, &it)
	if err := n.Check(r, out[:]); err != nil {
		return d, atHoldError(err)
	}
	if err = Refusal(op, &out[0]); err == nil {
		rec.AtHold(&it, before, &out[0])
	}
	return out[0], err
}

// atHoldError names fields as settle and extend have them.
func atHoldError(err error) error {
	input, ok := err.(*cluster.InputError)
	if !ok {
		return err
	}
	field := strings.TrimPrefix(input.Field, "items[0].")
	if field == "cost" {
		field = "actual"
	}
	return &cluster.InputError{Field: field, Reason: input.Reason}
}

// holdFault is why there is no hold, or not any more. Nothing was charged by the call that it
// answers.
func holdFault(code codes.Code, status int, text string) *door.Fault {
	field, _, _ := strings.Cut(text, ":")
	return &door.Fault{Code: code, Status: status, Field: field, Text: text}
}

// tooMany says that as many holds are open as there may be: no denial, and it may be tried again.
func tooMany(text string, most ...any) *door.Fault {
	f := holdFault(codes.ResourceExhausted, http.StatusTooManyRequests, fmt.Sprintf(text, most...))
	f.Type = door.Overloaded
	return f
}

var errUnreached = holdFault(codes.Unavailable, http.StatusServiceUnavailable,
	"id: the node that keeps this hold could not be reached; try again, a repeat has no further "+
		"effect")

var errSettled = holdFault(codes.FailedPrecondition, http.StatusGone,
	"id: this hold has been settled already")

var holdFaults = map[limiter.HoldState]*door.Fault{
	limiter.HoldRanOut: holdFault(codes.FailedPrecondition, http.StatusGone,
		"id: this hold has run out, and was charged as its limit says; report what was used "+
			"beyond that"),
	limiter.HoldUnknown: holdFault(codes.NotFound, http.StatusNotFound,
		"id: there is no hold of this id, or not any more"),
	limiter.HoldOther: holdFault(codes.AlreadyExists, http.StatusConflict,
		"id: this hold was settled with another amount before; or its id is another hold's"),
	limiter.HoldForeign: holdFault(codes.PermissionDenied, http.StatusForbidden,
		"holder: this hold is another holder's"),
	limiter.HoldsOfNode: tooMany("items: %d holds are open on one node, which is the most; settle "+
		"some, or let them run out earlier", limiter.MaxHolds),
	limiter.HoldsOfLimit: tooMany("items: this limit has %d holds open on one node, which is the "+
		"most; settle some, or let them run out earlier", limiter.MaxHoldsOfLimit),
	limiter.HoldsOfClient: tooMany("items: this client has as many holds open, of this limit or " +
		"on one node, as there is room left for, whatever holders it names; settle some, or let " +
		"them run out earlier"),
	limiter.HoldsOfHolder: tooMany("holder: has %d holds of this limit open on one node, which is "+
		"the most; settle some, or name holders", limiter.MaxHoldsOfHolder),
}

// StatusError is what a client is told if d, the answer to op, says that there is no hold, or not
// any more; nil if there is one, or a denial.
func StatusError(op cluster.Op, d *cluster.Decision) error {
	if err := Refusal(op, d); err != nil {
		return door.StatusError(err)
	}
	return nil
}

// Refusal is nil if d, the answer to op, says that there is a hold, or a denial; else it is the
// fault that a client is told.
func Refusal(op cluster.Op, d *cluster.Decision) error {
	switch {
	case op != cluster.OpReserve && d.Source == cluster.SourceFallback &&
		d.Hold == limiter.HoldNone:
		return errUnreached
	case op == cluster.OpExtend && d.Hold == limiter.HoldSettled:
		return errSettled
	}
	if f := holdFaults[d.Hold]; f != nil {
		return f
	}
	return nil
}
