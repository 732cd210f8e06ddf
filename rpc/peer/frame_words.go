package peer

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/ring"
	"penstock/rpc/wire"
)

// Field numbers of peer.proto for what boots say about ownership.
const (
	wordsFrom, wordsTo, wordsID, wordsAddr, wordsProcess, wordsSaid = 1, 2, 3, 4, 5, 6

	saidKindField, saidEpoch, saidConfig, saidMember, saidBoot, saidFlag = 1, 2, 3, 4, 5, 6
	saidBallot, saidAcceptedBallot, saidSent, saidClock, saidPartition   = 7, 8, 9, 10, 11
	saidBoots, saidPartitions, saidParts, saidReply, saidTo, saidInner   = 12, 13, 14, 15, 16, 17

	partPartition, partStanding, partOf, partEpoch, partWhole, partAt = 1, 2, 3, 4, 5, 6
)

const (
	// maxSaid is how many messages one boot may say to another at once: gifts are one for each
	// partition.
	maxSaid = 1 << 14
	// maxParts is how many partitions may be named in these, one as often as it is: 32 claims of
	// all, or answers to these. An answer without any field has two bytes in a frame and 56 in
	// memory.
	maxParts = 1 << 17
	// maxPeerAddr is the most bytes of a peer's address: a host name and a port.
	maxPeerAddr = 512
)

func appendWords(b []byte, num protowire.Number, w *cluster.Words) []byte {
	if w == nil {
		return b
	}
	b, begin := wire.Open(b, num)
	b = wire.AppendFixed(b, wordsFrom, uint64(w.From))
	b = wire.AppendFixed(b, wordsTo, uint64(w.To))
	b = wire.AppendString(b, wordsID, w.ID)
	b = wire.AppendString(b, wordsAddr, w.Addr)
	b = wire.AppendFixed(b, wordsProcess, w.Process)
	for _, m := range w.Said {
		b = appendSaid(b, wordsSaid, m)
	}
	return wire.Close(b, begin)
}

func appendSaid(b []byte, num protowire.Number, m ownership.Message) []byte {
	s := saidOf(m)
	b, begin := wire.Open(b, num)
	b = wire.AppendUint(b, saidKindField, uint64(s.kind))
	b = appendEpoch(b, saidEpoch, s.epoch)
	if s.config != nil {
		b = appendConfig(b, s.config)
	}
	if s.member != (ownership.Member{}) {
		b = appendMember(b, saidMember, &s.member)
	}
	b = wire.AppendFixed(b, saidBoot, uint64(s.boot))
	b = wire.AppendBool(b, saidFlag, s.flag)
	b = wire.AppendUint(b, saidBallot, uint64(s.ballot))
	b = wire.AppendUint(b, saidAcceptedBallot, uint64(s.accepted))
	b = wire.AppendUint(b, saidSent, protowire.EncodeZigZag(int64(s.sent)))
	b = wire.AppendUint(b, saidClock, protowire.EncodeZigZag(int64(s.clock)))
	b = wire.AppendUint(b, saidPartition, uint64(s.partition))
	b = appendBoots(b, saidBoots, s.boots)
	b = appendPartitions(b, saidPartitions, s.partitions)
	for i := range s.parts {
		b = appendPart(b, &s.parts[i])
	}
	b = wire.AppendBool(b, saidReply, s.reply)
	b = wire.AppendFixed(b, saidTo, uint64(s.to))
	if s.inner != nil {
		b = appendSaid(b, saidInner, s.inner)
	}
	return wire.Close(b, begin)
}

func appendPart(b []byte, p *ownership.PartAnswer) []byte {
	b, begin := wire.Open(b, saidParts)
	b = wire.AppendUint(b, partPartition, uint64(p.Partition))
	b = wire.AppendUint(b, partStanding, uint64(p.Standing))
	b = wire.AppendFixed(b, partOf, uint64(p.Copy.Of))
	b = wire.AppendUint(b, partEpoch, p.Copy.Epoch)
	b = wire.AppendBool(b, partWhole, p.Copy.Whole)
	b = wire.AppendUint(b, partAt, protowire.EncodeZigZag(int64(p.Copy.At)))
	return wire.Close(b, begin)
}

// readWords reads what a boot says. Nothing of it lies in b: messages are kept.
func readWords(b []byte) (*cluster.Words, error) {
	w, parts := new(cluster.Words), 0
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case wordsFrom:
			w.From = ownership.Boot(f.Value)
		case wordsTo:
			w.To = ownership.Boot(f.Value)
		case wordsID:
			w.ID = string(f.Bytes)
		case wordsAddr:
			w.Addr = string(f.Bytes)
		case wordsProcess:
			w.Process = f.Value
		case wordsSaid:
			if len(w.Said) == maxSaid {
				return nil, fmt.Errorf("have more than %d messages", maxSaid)
			}
			m, err := readSaid(f.Bytes, false)
			if err != nil {
				return nil, fmt.Errorf("said[%d] %w", len(w.Said), err)
			}
			if m != nil {
				w.Said = append(w.Said, m)
			}
			if parts += partsIn(m); parts > maxParts {
				return nil, fmt.Errorf("name more than %d partitions", maxParts)
			}
		}
	}
	if f.Err != nil {
		return nil, f.Err
	}
	return w, checkWords(w)
}

// partsIn is how many partitions a message names.
func partsIn(m ownership.Message) int {
	switch m := m.(type) {
	case ownership.Relayed:
		return partsIn(m.Inner)
	case ownership.Claim:
		return len(m.Partitions)
	case ownership.ClaimAnswer:
		return len(m.Parts)
	}
	return 0
}

// checkWords reports what is wrong with words, besides their messages.
func checkWords(w *cluster.Words) error {
	switch {
	case w.ID == "" || len(w.ID) > ownership.MaxName:
		return fmt.Errorf("have an id of %d bytes; 1 to %d are accepted",
			len(w.ID), ownership.MaxName)
	case len(w.Addr) > maxPeerAddr:
		return fmt.Errorf("have an addr of %d bytes; at most %d are accepted",
			len(w.Addr), maxPeerAddr)
	case w.From == 0:
		return errors.New("come from the boot 0")
	}
	return nil
}

// readSaid reads one message; nil if this release does not know its kind.
func readSaid(b []byte, relayed bool) (ownership.Message, error) {
	var s said
	var memo lineageMemo
	var err error
	f := wire.Fields{Rest: b}
	for f.Next() && err == nil {
		switch f.Num {
		case saidKindField:
			s.kind = saidKind(f.Value)
		case saidEpoch:
			s.epoch, err = memo.readEpoch(f.Bytes)
		case saidConfig:
			s.config, err = readConfig(f.Bytes)
		case saidMember:
			s.member, err = readMember(slices.Clone(f.Bytes))
		case saidInner:
			if relayed {
				return nil, errors.New("relays what is relayed already")
			}
			if s.inner, err = readSaid(f.Bytes, true); err == nil && s.inner == nil {
				return nil, nil // of a kind that is not known
			}
		case saidPartition, saidBoots, saidPartitions, saidParts:
			err = s.readList(&f)
		default:
			s.readNumber(&f)
		}
	}
	if err = errors.Join(err, f.Err); err != nil {
		return nil, err
	}
	return s.message()
}

// readNumber reads a field that accepts every value.
func (s *said) readNumber(f *wire.Fields) {
	switch f.Num {
	case saidBoot:
		s.boot = ownership.Boot(f.Value)
	case saidFlag:
		s.flag = f.Value != 0
	case saidBallot:
		s.ballot = ownership.Ballot(f.Value)
	case saidAcceptedBallot:
		s.accepted = ownership.Ballot(f.Value)
	case saidSent:
		s.sent = ownership.Instant(protowire.DecodeZigZag(f.Value))
	case saidClock:
		s.clock = ownership.Instant(protowire.DecodeZigZag(f.Value))
	case saidReply:
		s.reply = f.Value != 0
	case saidTo:
		s.to = ownership.Boot(f.Value)
	}
}

// readList reads a partition, or a list.
func (s *said) readList(f *wire.Fields) (err error) {
	switch f.Num {
	case saidPartition:
		s.partition, err = partitionOf(f.Value)
	case saidBoots:
		s.boots, err = readMemberBoots(s.boots, f, ownership.MaxMembers)
	case saidPartitions:
		s.partitions, err = readClaimed(s.partitions, f)
	case saidParts:
		if len(s.parts) == ring.Partitions {
			return fmt.Errorf("answers for more than the %d partitions there are", ring.Partitions)
		}
		var p ownership.PartAnswer
		p, err = readPart(f.Bytes)
		s.parts = append(s.parts, p)
	}
	return err
}

func partitionOf(v uint64) (int, error) {
	if v >= ring.Partitions {
		return 0, fmt.Errorf("names partition %d; there are 0 to %d", v, ring.Partitions-1)
	}
	return int(v), nil
}

// readClaimed appends a list of partitions, packed or a single one of a list that is not.
func readClaimed(list []int, f *wire.Fields) ([]int, error) {
	short, err := readPartitions(nil, f)
	if err != nil {
		return nil, err
	}
	if len(list)+len(short) > ring.Partitions {
		return nil, fmt.Errorf("lists more than the %d partitions there are", ring.Partitions)
	}
	for _, p := range short {
		list = append(list, int(p))
	}
	return list, nil
}

func readPart(b []byte) (p ownership.PartAnswer, err error) {
	f := wire.Fields{Rest: b}
	for f.Next() && err == nil {
		switch f.Num {
		case partPartition:
			p.Partition, err = partitionOf(f.Value)
		case partStanding:
			if f.Value > uint64(ownership.StandingHeld) {
				err = fmt.Errorf("has the standing %d; 0 to %d are known",
					f.Value, ownership.StandingHeld)
			}
			p.Standing = ownership.Standing(f.Value)
		case partOf:
			p.Copy.Of = ownership.Boot(f.Value)
		case partEpoch:
			p.Copy.Epoch = f.Value
		case partWhole:
			p.Copy.Whole = f.Value != 0
		case partAt:
			p.Copy.At = ownership.Instant(protowire.DecodeZigZag(f.Value))
		}
	}
	return p, errors.Join(err, f.Err)
}
