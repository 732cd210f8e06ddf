package rpc

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
)

// appendAnswer appends the answer to the ask with tag to a reply.
func appendAnswer(b []byte, tag uint64, a *cluster.Answer) []byte {
	size := sizeUint(tag) + sizeFixed(a.RingHash) + sizeBool(a.CutOff) + sizeBool(a.Leaving) +
		sizeWords(a.Words) + sizeEpoch(a.Epoch)
	for i := range a.Items {
		size += sizeBytes(outcomeSize(&a.Items[i]))
	}
	if a.Move != nil {
		size += sizeBytes(moveAnswerSize(a.Move))
	}
	for i := range a.Owners {
		size += sizeBytes(ownerSize(&a.Owners[i]))
	}
	b = appendHead(b, replyAnswers, size)
	b = appendUint(b, answerTag, tag)
	b = appendFixed(b, answerRingHash, a.RingHash)
	for i := range a.Items {
		b = appendOutcome(b, answerOutcomes, &a.Items[i])
	}
	if a.Move != nil {
		b = appendMoveAnswer(b, a.Move)
	}
	for i := range a.Owners {
		m := &a.Owners[i]
		b = appendHead(b, answerOwners, ownerSize(m))
		b = appendString(b, ownerID, m.ID)
		b = appendFixed(b, ownerBoot, m.Boot)
		b = appendString(b, ownerAddr, m.PeerAddr)
		b = appendUint(b, ownerFeatures, uint64(m.Features))
	}
	b = appendBool(b, answerCutOff, a.CutOff)
	b = appendBool(b, answerLeaving, a.Leaving)
	b = appendWords(b, answerWords, a.Words)
	return appendEpoch(b, answerEpoch, a.Epoch)
}

func ownerSize(m *cluster.Member) int {
	return sizeString(m.ID) + sizeFixed(m.Boot) + sizeString(m.PeerAddr) + sizeUint(uint64(m.Features))
}

func readOwner(b []byte) (m cluster.Member, err error) {
	f := fields{rest: b}
	for f.next() {
		switch f.num {
		case ownerID:
			m.ID = string(f.bytes)
		case ownerBoot:
			m.Boot = f.value
		case ownerAddr:
			m.PeerAddr = string(f.bytes)
		case ownerFeatures:
			m.Features = cluster.Features(f.value)
		}
	}
	return m, f.err
}

func appendOutcome(b []byte, num protowire.Number, it *cluster.AnswerItem) []byte {
	d := &it.Decision
	b = appendHead(b, num, outcomeSize(it))
	b = appendUint(b, outcomeStatus, uint64(it.Status))
	b = appendString(b, outcomeOwner, it.Owner)
	b = appendBool(b, outcomeAllowed, d.Allowed)
	b = appendUint(b, outcomeLimit, uint64(d.Limit))
	b = appendUint(b, outcomeRemaining, uint64(d.Remaining))
	b = appendUint(b, outcomeRetry, protowire.EncodeZigZag(int64(d.RetryAfter)))
	b = appendUint(b, outcomeReset, uint64(d.ResetAfter))
	b = appendUint(b, outcomeDelay, uint64(d.Delay))
	b = appendUint(b, outcomeDrained, uint64(d.Drained))
	b = appendUint(b, outcomeSession, protowire.EncodeZigZag(int64(d.Session)))
	b = appendBool(b, outcomeDegraded, it.Degraded)
	b = appendUint(b, outcomeBound, protowire.EncodeZigZag(it.Bound))
	b = appendUint(b, outcomeHold, uint64(d.Hold))
	b = appendBool(b, outcomeRestarted, d.Restarted)
	return appendBool(b, outcomeTold, it.Told)
}

func outcomeSize(it *cluster.AnswerItem) int {
	d := &it.Decision
	return sizeUint(uint64(it.Status)) + sizeString(it.Owner) + sizeBool(d.Allowed) + sizeUint(uint64(d.Limit)) + sizeUint(uint64(d.Remaining)) +
		sizeUint(protowire.EncodeZigZag(int64(d.RetryAfter))) + sizeUint(uint64(d.ResetAfter)) + sizeUint(uint64(d.Delay)) +
		sizeUint(uint64(d.Drained)) + sizeUint(protowire.EncodeZigZag(int64(d.Session))) + sizeBool(it.Degraded) + sizeUint(protowire.EncodeZigZag(it.Bound)) +
		sizeUint(uint64(d.Hold)) + sizeBool(d.Restarted) + sizeBool(it.Told)
}

// appendRefusal appends to a reply why the ask with tag could not be read.
func appendRefusal(b []byte, tag uint64, reason string) []byte {
	b = appendHead(b, replyAnswers, sizeUint(tag)+sizeString(reason))
	b = appendUint(b, answerTag, tag)
	return appendString(b, answerError, reason)
}

// eachAnswer hands the bytes of each answer of a reply to take, with its tag.
func eachAnswer(b []byte, take func(tag uint64, answer []byte)) error {
	reply := fields{rest: b}
	for reply.next() {
		if reply.num != replyAnswers || reply.wire != protowire.BytesType {
			continue
		}
		tag := uint64(0)
		f := fields{rest: reply.bytes}
		for tag == 0 && f.next() { // the tag comes first, unless the peer is built otherwise
			if f.num == answerTag {
				tag = f.value
			}
		}
		if f.err != nil {
			return f.err
		}
		take(tag, reply.bytes)
	}
	return reply.err
}

// readAnswer reads one answer to an ask of items items. refusal is the peer's reason for not having
// read the ask.
func readAnswer(b []byte, items int, memo *lineageMemo) (a *cluster.Answer, refusal string, err error) {
	a = &cluster.Answer{Items: make([]cluster.AnswerItem, 0, items)}
	f := fields{rest: b}
	for f.next() {
		switch f.num {
		case answerRingHash:
			a.RingHash = f.value
		case answerOutcomes:
			if len(a.Items) == items {
				return nil, "", fmt.Errorf("has more than the %d outcomes that were asked for", items)
			}
			it, err := readOutcome(f.bytes)
			if err != nil {
				return nil, "", err
			}
			a.Items = append(a.Items, it)
		case answerCutOff:
			a.CutOff = f.value != 0
		case answerLeaving:
			a.Leaving = f.value != 0
		case answerWords, answerEpoch:
			if err := readAgreed(a, &f, memo); err != nil {
				return nil, "", err
			}
		case answerError:
			refusal = string(f.bytes)
		case answerMove:
			m, err := readMoveAnswer(f.bytes, memo)
			if err != nil {
				return nil, "", err
			}
			a.Move = m
		case answerOwners:
			if len(a.Owners) == items {
				return nil, "", fmt.Errorf("introduces more than %d owners, for as many items", items)
			}
			m, err := readOwner(f.bytes)
			if err != nil {
				return nil, "", err
			}
			a.Owners = append(a.Owners, m)
		}
	}
	return a, refusal, f.err
}

// readAgreed reads a field of an answer that is about what members agree on.
func readAgreed(a *cluster.Answer, f *fields, memo *lineageMemo) (err error) {
	if f.num == answerEpoch {
		a.Epoch, err = memo.readEpoch(f.bytes)
		return err
	}
	if a.Words, err = readWords(f.bytes); err != nil {
		return fmt.Errorf("has words that %w", err)
	}
	return nil
}

func readOutcome(b []byte) (it cluster.AnswerItem, err error) {
	status := uint64(0)
	d := &it.Decision
	f := fields{rest: b}
	for f.next() {
		switch f.num {
		case outcomeStatus:
			status = f.value
		case outcomeOwner:
			it.Owner = string(f.bytes)
		case outcomeAllowed:
			d.Allowed = f.value != 0
		case outcomeLimit:
			d.Limit = int64(f.value)
		case outcomeRemaining:
			d.Remaining = int64(f.value)
		case outcomeRetry:
			d.RetryAfter = time.Duration(protowire.DecodeZigZag(f.value))
		case outcomeReset:
			d.ResetAfter = time.Duration(f.value)
		case outcomeDelay:
			d.Delay = time.Duration(f.value)
		case outcomeDegraded:
			it.Degraded = f.value != 0
		case outcomeBound:
			it.Bound = protowire.DecodeZigZag(f.value)
		case outcomeHold:
			d.Hold = limiter.HoldState(min(f.value, math.MaxUint8))
		case outcomeRestarted:
			d.Restarted = f.value != 0
		case outcomeTold:
			it.Told = f.value != 0
		case outcomeDrained:
			d.Drained = int64(f.value)
		case outcomeSession:
			d.Session = limiter.Millis(protowire.DecodeZigZag(f.value))
		}
	}
	if f.err == nil && status > uint64(cluster.StatusLost) {
		return it, fmt.Errorf("has an outcome with status %d; 0 to %d are known", status, cluster.StatusLost)
	}
	it.Status = cluster.Status(status)
	return it, f.err
}
