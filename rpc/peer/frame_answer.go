package peer

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/wire"
)

// appendAnswer appends the answer to the ask with tag to a reply.
func appendAnswer(b []byte, tag uint64, a *cluster.Answer) []byte {
	b, begin := wire.Open(b, replyAnswers)
	b = wire.AppendUint(b, answerTag, tag)
	b = wire.AppendFixed(b, answerRingHash, a.RingHash)
	for i := range a.Items {
		b = appendOutcome(b, answerOutcomes, &a.Items[i])
	}
	if a.Move != nil {
		b = appendMoveAnswer(b, a.Move)
	}
	for i := range a.Owners {
		m := &a.Owners[i]
		var end int
		b, end = wire.Open(b, answerOwners)
		b = wire.AppendString(b, ownerID, m.ID)
		b = wire.AppendFixed(b, ownerBoot, m.Boot)
		b = wire.AppendString(b, ownerAddr, m.PeerAddr)
		b = wire.Close(wire.AppendUint(b, ownerFeatures, uint64(m.Features)), end)
	}
	b = wire.AppendBool(b, answerCutOff, a.CutOff)
	b = wire.AppendBool(b, answerLeaving, a.Leaving)
	b = appendWords(b, answerWords, a.Words)
	b = appendEpoch(b, answerEpoch, a.Epoch)
	b = wire.AppendFixed(b, answerSecret, uint64(a.Secret))
	return wire.Close(wire.AppendBool(b, answerPassed, a.Passed), begin)
}

func readOwner(b []byte) (m cluster.Member, err error) {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case ownerID:
			m.ID = string(f.Bytes)
		case ownerBoot:
			m.Boot = f.Value
		case ownerAddr:
			m.PeerAddr = string(f.Bytes)
		case ownerFeatures:
			m.Features = cluster.Features(f.Value)
		}
	}
	return m, f.Err
}

func appendOutcome(b []byte, num protowire.Number, it *cluster.AnswerItem) []byte {
	d := &it.Decision
	b, begin := wire.Open(b, num)
	b = wire.AppendUint(b, outcomeStatus, uint64(it.Status))
	b = wire.AppendString(b, outcomeOwner, it.Owner)
	b = wire.AppendBool(b, outcomeAllowed, d.Allowed)
	b = wire.AppendUint(b, outcomeLimit, uint64(d.Limit))
	b = wire.AppendUint(b, outcomeRemaining, uint64(d.Remaining))
	b = wire.AppendUint(b, outcomeRetry, protowire.EncodeZigZag(int64(d.RetryAfter)))
	b = wire.AppendUint(b, outcomeReset, uint64(d.ResetAfter))
	b = wire.AppendUint(b, outcomeDelay, uint64(d.Delay))
	b = wire.AppendUint(b, outcomeDrained, uint64(d.Drained))
	b = wire.AppendUint(b, outcomeSession, protowire.EncodeZigZag(int64(d.Session)))
	b = wire.AppendBool(b, outcomeDegraded, it.Degraded)
	b = wire.AppendUint(b, outcomeBound, protowire.EncodeZigZag(it.Bound))
	b = wire.AppendUint(b, outcomeHold, uint64(d.Hold))
	b = wire.AppendBool(b, outcomeRestarted, d.Restarted)
	return wire.Close(wire.AppendBool(b, outcomeTold, it.Told), begin)
}

// appendRefusal appends to a reply why the ask with tag could not be read.
func appendRefusal(b []byte, tag uint64, reason string) []byte {
	b, begin := wire.Open(b, replyAnswers)
	b = wire.AppendUint(b, answerTag, tag)
	return wire.Close(wire.AppendString(b, answerError, reason), begin)
}

// eachAnswer hands the bytes of each answer of a reply to take, with its tag.
func eachAnswer(b []byte, take func(tag uint64, answer []byte)) error {
	reply := wire.Fields{Rest: b}
	for reply.Next() {
		if reply.Num != replyAnswers || reply.Wire != protowire.BytesType {
			continue
		}
		tag := uint64(0)
		f := wire.Fields{Rest: reply.Bytes}
		for tag == 0 && f.Next() { // the tag comes first, unless the peer is built otherwise
			if f.Num == answerTag {
				tag = f.Value
			}
		}
		if f.Err != nil {
			return f.Err
		}
		take(tag, reply.Bytes)
	}
	return reply.Err
}

// readAnswer reads one answer to an ask of items items. refusal is the peer's reason for not having
// read the ask.
func readAnswer(b []byte, items int,
	memo *lineageMemo,
) (a *cluster.Answer, refusal string, err error) {
	a = &cluster.Answer{Items: make([]cluster.AnswerItem, 0, items)}
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case answerRingHash:
			a.RingHash = f.Value
		case answerOutcomes:
			if len(a.Items) == items {
				return nil, "", fmt.Errorf("has more than the %d outcomes that were asked for",
					items)
			}
			it, err := readOutcome(f.Bytes)
			if err != nil {
				return nil, "", err
			}
			a.Items = append(a.Items, it)
		case answerCutOff, answerLeaving, answerPassed:
			setStanding(a, &f)
		case answerWords, answerEpoch, answerSecret:
			if err := readAgreed(a, &f, memo); err != nil {
				return nil, "", err
			}
		case answerError:
			refusal = string(f.Bytes)
		case answerMove:
			m, err := readMoveAnswer(f.Bytes, memo)
			if err != nil {
				return nil, "", err
			}
			a.Move = m
		case answerOwners:
			if err := addOwner(a, f.Bytes, items); err != nil {
				return nil, "", err
			}
		}
	}
	return a, refusal, f.Err
}

// setStanding sets what an answer says of how it came about.
func setStanding(a *cluster.Answer, f *wire.Fields) {
	switch yes := f.Value != 0; f.Num {
	case answerCutOff:
		a.CutOff = yes
	case answerLeaving:
		a.Leaving = yes
	case answerPassed:
		a.Passed = yes
	}
}

// addOwner reads a node that decides for keys of an answer to an ask of items items.
func addOwner(a *cluster.Answer, b []byte, items int) error {
	if len(a.Owners) == items {
		return fmt.Errorf("introduces more than %d owners, for as many items", items)
	}
	m, err := readOwner(b)
	if err == nil {
		a.Owners = append(a.Owners, m)
	}
	return err
}

// readAgreed reads a field of an answer that is about what members agree on.
func readAgreed(a *cluster.Answer, f *wire.Fields, memo *lineageMemo) (err error) {
	if f.Num == answerSecret {
		a.Secret = cluster.Secret(f.Value)
		return nil
	}
	if f.Num == answerEpoch {
		a.Epoch, err = memo.readEpoch(f.Bytes)
		return err
	}
	if a.Words, err = readWords(f.Bytes); err != nil {
		return fmt.Errorf("has words that %w", err)
	}
	return nil
}

// setDecision sets a field of a decision, if f is one.
func setDecision(d *limiter.Decision, f *wire.Fields) {
	switch f.Num {
	case outcomeAllowed:
		d.Allowed = f.Value != 0
	case outcomeLimit:
		d.Limit = int64(f.Value)
	case outcomeRemaining:
		d.Remaining = int64(f.Value)
	case outcomeRetry:
		d.RetryAfter = time.Duration(protowire.DecodeZigZag(f.Value))
	case outcomeReset:
		d.ResetAfter = time.Duration(f.Value)
	case outcomeDelay:
		d.Delay = time.Duration(f.Value)
	case outcomeHold:
		d.Hold = limiter.HoldState(min(f.Value, math.MaxUint8))
	case outcomeRestarted:
		d.Restarted = f.Value != 0
	case outcomeDrained:
		d.Drained = int64(f.Value)
	case outcomeSession:
		d.Session = limiter.Millis(protowire.DecodeZigZag(f.Value))
	}
}

func readOutcome(b []byte) (it cluster.AnswerItem, err error) {
	status := uint64(0)
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case outcomeStatus:
			status = f.Value
		case outcomeOwner:
			it.Owner = string(f.Bytes)
		case outcomeDegraded:
			it.Degraded = f.Value != 0
		case outcomeBound:
			it.Bound = protowire.DecodeZigZag(f.Value)
		case outcomeTold:
			it.Told = f.Value != 0
		default:
			setDecision(&it.Decision, &f)
		}
	}
	if f.Err == nil && status > uint64(cluster.StatusLost) {
		return it, fmt.Errorf("has an outcome with status %d; 0 to %d are known", status,
			cluster.StatusLost)
	}
	it.Status = cluster.Status(status)
	return it, f.Err
}
