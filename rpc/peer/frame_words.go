package peer

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/rpc/wire"
)

// Field numbers of peer.proto for what boots say about ownership.
const (
	wordsFrom, wordsTo, wordsID, wordsAddr, wordsProcess, wordsSaid = 1, 2, 3, 4, 5, 6

	saidKindField, saidEpoch, saidConfig, saidMember, saidBoot, saidFlag = 1, 2, 3, 4, 5, 6
	saidBallot, saidAcceptedBallot, saidSent, saidClock                  = 7, 8, 9, 10
	saidBoots, saidReply                                                 = 12, 15
)

const (
	// maxSaid is how many messages one boot may say to another at once.
	maxSaid = 1 << 14
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
	b = appendBoots(b, saidBoots, s.boots)
	b = wire.AppendBool(b, saidReply, s.reply)
	return wire.Close(b, begin)
}

// readWords reads what a boot says. Nothing of it lies in b: messages are kept.
func readWords(b []byte) (*cluster.Words, error) {
	w := new(cluster.Words)
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
			m, err := readSaid(f.Bytes)
			if err != nil {
				return nil, fmt.Errorf("said[%d] %w", len(w.Said), err)
			}
			if m != nil {
				w.Said = append(w.Said, m)
			}
		}
	}
	if f.Err != nil {
		return nil, f.Err
	}
	return w, checkWords(w)
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
func readSaid(b []byte) (ownership.Message, error) {
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
		case saidBoots:
			s.boots, err = readMemberBoots(s.boots, &f, ownership.MaxMembers)
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
	}
}
