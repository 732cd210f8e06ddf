package peer

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/door"
	"penstock/rpc/wire"
)

// This file reads and writes the messages of proto/penstock/peer/v1/peer.proto by hand. The
// generated code would allocate five times for each item and copy each key; here a key stays in the
// frame until the table keeps it. The tests hold the two against each other.

// maxAsks bounds what one frame can cost: a frame of 4 MiB has room for a million asks of nothing,
// each with its refusal. A line stops at 1 MiB (maxFrame), where the smallest asks are not yet ten
// thousand.
const maxAsks = 1 << 14

// Field numbers of peer.proto.
const (
	FrameLimits, frameAsks = 1, 2

	limitName, limitAlgorithm, limitLimit, limitPer = 1, 2, 3, 4
	limitBurst, limitAnchor, limitFlags             = 5, 6, 7
	limitMaxDebt, limitMinGap, limitRefill          = 8, 9, 10
	limitBuckets, limitCalendar, limitTimeZone      = 11, 12, 13
	limitOverride, limitMaxDelay                    = 14, 15

	askTag, askRingHash, askHop, askAtomic, askLeft = 1, 2, 3, 4, 5
	askItems, askMove, askRelay, askFrom, askForget = 6, 7, 8, 9, 10

	askWords = 11
	askTrace = 12
	askFor   = 13

	itemLimit, itemKey, itemCost, itemOp        = 1, 2, 3, 4
	itemOrigin, itemSequence, itemTerms, itemAt = 5, 6, 7, 8
	itemHold, itemTell, itemMaxDelay            = 9, 10, 11

	askedOrigin, askedSequence, askedTTL, askedHolder, askedCharge = 1, 2, 3, 4, 6
	askedClient                                                    = 7

	replyAnswers = 1

	answerTag, answerRingHash, answerOutcomes, answerError = 1, 2, 3, 4
	answerMove, answerOwners, answerCutOff, answerLeaving  = 5, 6, 7, 8

	answerWords, answerEpoch, answerSecret, answerPassed = 10, 11, 12, 13

	ownerID, ownerBoot, ownerAddr, ownerFeatures = 1, 2, 3, 4

	outcomeStatus, outcomeOwner, outcomeAllowed, outcomeLimit     = 1, 2, 3, 4
	outcomeRemaining, outcomeRetry, outcomeReset, outcomeDelay    = 5, 6, 7, 8
	outcomeDrained, outcomeSession, outcomeDegraded, outcomeBound = 9, 10, 11, 12
	outcomeHold, outcomeRestarted, outcomeTold                    = 13, 14, 15
)

// frameWriter makes a frame of asks. The length of a message is put in front of it when its end is
// known (wire.Close), so nothing is counted beforehand.
type frameWriter struct {
	buf    []byte
	draft  bool             // it is only weighed, and has no limits
	limits []*limiter.Limit // written so far, by index
	last   int              // index of the limit of the item before
	index  map[*limiter.Limit]int
}

func (w *frameWriter) reset() {
	w.buf = w.buf[:0]
	clear(w.limits)
	w.limits, w.last = w.limits[:0], 0
	clear(w.index)
}

// add appends a with its tag; left is what remains of its deadline, in nanoseconds.
func (w *frameWriter) add(tag uint64, a *cluster.Ask, left int64) {
	eachLimit(a, w.bring)
	w.addAsk(tag, a, left)
}

// addAsk appends a, of which the frame has all limits.
func (w *frameWriter) addAsk(tag uint64, a *cluster.Ask, left int64) {
	b, begin := wire.Open(w.buf, frameAsks)
	b = wire.AppendUint(b, askTag, tag)
	b = wire.AppendFixed(b, askRingHash, a.RingHash)
	b = wire.AppendUint(b, askHop, uint64(a.Hop))
	b = wire.AppendBool(b, askAtomic, a.Atomic)
	b = wire.AppendUint(b, askLeft, uint64(left))
	for i := range a.Items {
		b = w.appendItem(b, &a.Items[i])
	}
	b = wire.AppendBool(b, askRelay, a.Relay)
	if a.Move != nil {
		b = w.appendMove(b, a.Move)
	}
	b = wire.AppendFixed(b, askFrom, a.From)
	b = appendBoots(b, askForget, a.Forget)
	b = appendTrace(appendWords(b, askWords, a.Words), a.Trace)
	w.buf = wire.Close(wire.AppendFixed(b, askFor, a.For), begin)
}

func (w *frameWriter) appendItem(b []byte, it *cluster.AskItem) []byte {
	b, begin := wire.Open(b, askItems)
	b = wire.AppendUint(b, itemLimit, w.limit(it.Limit))
	b = wire.AppendString(b, itemKey, it.Key)
	b = wire.AppendUint(b, itemCost, protowire.EncodeZigZag(it.Cost))
	b = wire.AppendUint(b, itemOp, uint64(it.Op))
	b = wire.AppendFixed(b, itemOrigin, it.ID.Origin)
	b = wire.AppendUint(b, itemSequence, it.ID.Sequence)
	if it.Terms != (cluster.Terms{}) {
		b = wire.AppendUint(b, itemTerms, termsBits(&it.Terms))
		b = wire.AppendUint(b, itemAt, protowire.EncodeZigZag(int64(it.At)))
		b = wire.AppendUint(b, itemMaxDelay, uint64(it.MaxDelay))
	}
	if it.Hold != nil {
		b = appendHold(b, it.Hold)
	}
	return wire.Close(wire.AppendBool(b, itemTell, it.Tell), begin)
}

func termsBits(t *cluster.Terms) uint64 {
	return bitsOf(&t.Report, &t.Drain, &t.Strict, &t.Timed, &t.Bounded)
}

func setTerms(t *cluster.Terms, v uint64) {
	setBits(v, &t.Report, &t.Drain, &t.Strict, &t.Timed, &t.Bounded)
}

// readTerms reads one of the fields of t.
func readTerms(f *wire.Fields, t *cluster.Terms) {
	switch f.Num {
	case itemTerms:
		setTerms(t, f.Value)
	case itemAt:
		t.At = limiter.Millis(protowire.DecodeZigZag(f.Value))
	case itemMaxDelay:
		t.MaxDelay = time.Duration(f.Value)
	}
}

// frameReader reads frames. Its asks are good until the next frame, their keys as long as the bytes
// of the frame.
type frameReader struct {
	known  *door.LimitCache
	limits []frameLimit // of the frame under way, by index
	ask    cluster.Ask  // the ask under way
	memo   lineageMemo
	// records of the move under way
	records int
}

// frameLimit is a limit of a frame, or why it is none.
type frameLimit struct {
	limit *limiter.Limit
	err   error
}

// read hands each ask of a frame to serve, in order, with its tag, or with the reason why it cannot
// be served. An error says that the frame itself is broken; what was served until then is served.
// Deadlines count from now.
func (r *frameReader) read(b []byte, now limiter.Instant, serve func(tag uint64, a *cluster.Ask,
	err error),
) error {
	clear(r.limits)
	r.limits = r.limits[:0]
	asks := 0
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch {
		case f.Wire != protowire.BytesType:
		case f.Num == frameAsks && asks == maxAsks:
			return fmt.Errorf("has more than %d asks", maxAsks)
		case f.Num == FrameLimits:
			l, err := r.readLimit(f.Bytes)
			r.limits = append(r.limits, frameLimit{l, err})
		case f.Num == frameAsks:
			asks++
			tag, err := r.readAsk(f.Bytes, now)
			serve(tag, &r.ask, err)
		}
	}
	return f.Err
}

// readAsk reads b into r.ask.
func (r *frameReader) readAsk(b []byte, now limiter.Instant) (tag uint64, err error) {
	clear(r.ask.Items)
	r.ask = cluster.Ask{Items: r.ask.Items[:0], Forget: r.ask.Forget[:0]}
	left := time.Duration(0)
	var wrong, broken error // of an item, of the move or the words; the tag may still come
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case askTag:
			tag = f.Value
		case askRingHash, askFrom, askFor:
			setBoot(&r.ask, &f)
		case askHop:
			r.ask.Hop = uint8(min(f.Value, math.MaxUint8))
		case askAtomic:
			r.ask.Atomic = f.Value != 0
		case askLeft:
			left = time.Duration(f.Value)
		case askItems:
			wrong = cmp.Or(wrong, r.readItem(f.Bytes))
		case askRelay:
			r.ask.Relay = f.Value != 0
		case askMove:
			var e error
			r.ask.Move, e = r.readMove(f.Bytes)
			broken = named(broken, "move", e)
		case askForget:
			r.ask.Forget = readBoots(r.ask.Forget, &f)
		case askWords:
			var e error
			r.ask.Words, e = readWords(f.Bytes)
			broken = named(broken, "words", e)
		case askTrace:
			r.ask.Trace = readTrace(f.Bytes)
		}
	}
	r.ask.Deadline = now.Add(left)
	if f.Err != nil {
		return tag, fmt.Errorf("ask %w", f.Err)
	}
	return tag, r.checkAsk(broken, wrong)
}

// setBoot sets the field of a that is a boot, or the hash of a ring.
func setBoot(a *cluster.Ask, f *wire.Fields) {
	switch f.Num {
	case askRingHash:
		a.RingHash = f.Value
	case askFrom:
		a.From = f.Value
	case askFor:
		a.For = f.Value
	}
}

// checkAsk says what is wrong with r.ask, after its move or words were broken, or an item wrong.
func (r *frameReader) checkAsk(broken, wrong error) error {
	switch a := &r.ask; {
	case broken != nil:
		return broken
	case wrong != nil:
		return fmt.Errorf("items[%d]%w", len(a.Items), wrong)
	case len(a.Items) == 0 && a.Move == nil && a.Words == nil && len(a.Forget) == 0:
		return fmt.Errorf("items has 0 items; 1 to %d are accepted", cluster.MaxItems)
	}
	return nil
}

// named is the first of two errors, the second one with the name of its field.
func named(first error, field string, err error) error {
	if first == nil && err != nil {
		return fmt.Errorf("%s %w", field, err)
	}
	return first
}

// readItem appends an item to r.ask. Its key lies in b.
func (r *frameReader) readItem(b []byte) error {
	if len(r.ask.Items) == cluster.MaxItems {
		return fmt.Errorf(": an ask has at most %d items", cluster.MaxItems)
	}
	var it cluster.AskItem
	limit, op := uint64(0), uint64(0)
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case itemLimit:
			limit = f.Value
		case itemKey:
			it.Key = wire.Borrow(f.Bytes)
		case itemCost:
			it.Cost = protowire.DecodeZigZag(f.Value)
		case itemOp:
			op = f.Value
		case itemOrigin:
			it.ID.Origin = f.Value
		case itemSequence:
			it.ID.Sequence = f.Value
		case itemTerms, itemAt, itemMaxDelay:
			readTerms(&f, &it.Terms)
		case itemHold:
			if it.Hold, f.Err = readHold(f.Bytes); f.Err != nil {
				return fmt.Errorf(".hold %w", f.Err)
			}
		case itemTell:
			it.Tell = f.Value != 0
		}
	}
	if f.Err != nil {
		return fmt.Errorf(" %w", f.Err)
	}
	return r.addItem(&it, limit, op)
}

// addItem appends it to r.ask, with the limit of that number in the frame.
func (r *frameReader) addItem(it *cluster.AskItem, limit, op uint64) error {
	switch {
	case limit >= uint64(len(r.limits)):
		return fmt.Errorf(".limit is %d; this frame has brought %d limits so far", limit,
			len(r.limits))
	case r.limits[limit].err != nil:
		return fmt.Errorf(".limit is %d: %w", limit, r.limits[limit].err)
	case len(it.Key) < cluster.MinKey || len(it.Key) > cluster.MaxKey:
		return fmt.Errorf(".key has %d bytes; %d to %d are accepted", len(it.Key), cluster.MinKey,
			cluster.MaxKey)
	case op > uint64(cluster.OpLease):
		return fmt.Errorf(".op is %d; 0 to %d are known", op, cluster.OpLease)
	}
	it.Limit, it.Op = r.limits[limit].limit, cluster.Op(op)
	r.ask.Items = append(r.ask.Items, *it)
	return nil
}
