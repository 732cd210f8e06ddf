package peer

import (
	"fmt"

	"penstock/cluster/ownership"
)

// said is a message about ownership as peer.proto has it: one shape for all kinds, so there is one
// writer and one reader. Its kind says which of the fields mean something.
type said struct {
	kind     saidKind
	epoch    ownership.Epoch
	config   *ownership.Configuration
	member   ownership.Member
	boot     ownership.Boot
	flag     bool
	ballot   ownership.Ballot
	accepted ownership.Ballot
	sent     ownership.Instant
	clock    ownership.Instant
	boots    []ownership.Boot
	reply    bool
}

// saidKind is the number of a kind of message. The numbers never change. 20 to 26 are reserved
// (peer.proto): no message gets one of them.
type saidKind uint64

const (
	saidHello saidKind = 1 + iota
	saidVote
	saidRelease
	saidJoin
	saidRefuse
	saidRenew
	saidRenewAck
	saidFarewell
	saidCanvass
	saidConsent
	saidPrepare
	saidPromise
	saidAccept
	saidAccepted
	saidDecided
	saidBehind
	saidMissed
	saidSecede
	saidSeceded
)

// saidOf is m as it is written.
func saidOf(m ownership.Message) said {
	switch m := m.(type) {
	case ownership.Hello:
		return said{
			kind: saidHello, member: m.Member, boot: m.Former, config: m.Config, flag: m.Deciding,
			reply: m.Reply,
		}
	case ownership.Vote:
		return said{kind: saidVote, boot: m.Founder, flag: m.Given}
	case ownership.Release:
		return said{kind: saidRelease}
	case ownership.Join:
		return said{kind: saidJoin, member: m.Member, boot: m.Former}
	case ownership.Refuse:
		return said{kind: saidRefuse, boot: m.Holder}
	case ownership.Renew:
		return said{
			kind: saidRenew, epoch: m.Epoch, sent: m.Sent, flag: m.Leaving, boots: m.Unreached,
		}
	case ownership.RenewAck:
		return said{kind: saidRenewAck, epoch: m.Epoch, sent: m.Sent, clock: m.Clock}
	case ownership.Farewell:
		return said{kind: saidFarewell, epoch: m.Epoch}
	case ownership.Behind:
		return said{kind: saidBehind, epoch: m.Epoch}
	case ownership.Missed:
		return said{kind: saidMissed, epoch: m.Epoch}
	case ownership.Secede:
		return said{kind: saidSecede, epoch: m.Epoch, flag: m.Recover}
	case ownership.Seceded:
		return said{kind: saidSeceded, epoch: m.Epoch}
	}
	return saidOfChange(m)
}

// saidOfChange is the same for what voters say about the next configuration.
func saidOfChange(m ownership.Message) said {
	switch m := m.(type) {
	case ownership.Canvass:
		return said{kind: saidCanvass, config: m.Value}
	case ownership.Consent:
		return said{kind: saidConsent, config: m.Value, flag: m.Yes}
	case ownership.Prepare:
		return said{kind: saidPrepare, epoch: m.Epoch, ballot: m.Ballot}
	case ownership.Promise:
		return said{
			kind: saidPromise, epoch: m.Epoch, ballot: m.Ballot, accepted: m.Accepted,
			config: m.Value,
		}
	case ownership.Accept:
		return said{kind: saidAccept, ballot: m.Ballot, config: m.Value}
	case ownership.Accepted:
		return said{kind: saidAccepted, epoch: m.Epoch, ballot: m.Ballot}
	case ownership.Decided:
		return said{kind: saidDecided, config: m.Config}
	}
	panic(fmt.Sprintf("rpc: there is no frame for an ownership message %T", m))
}

// message is the message that s is written for; nil if its kind is not known.
func (s *said) message() (ownership.Message, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	switch s.kind {
	case saidHello:
		return ownership.Hello{
			Member: s.member, Former: s.boot, Config: s.config, Deciding: s.flag, Reply: s.reply,
		}, nil
	case saidVote:
		return ownership.Vote{Founder: s.boot, Given: s.flag}, nil
	case saidRelease:
		return ownership.Release{}, nil
	case saidJoin:
		return ownership.Join{Member: s.member, Former: s.boot}, nil
	case saidRefuse:
		return ownership.Refuse{Holder: s.boot}, nil
	case saidRenew:
		return ownership.Renew{
			Epoch: s.epoch, Sent: s.sent, Leaving: s.flag, Unreached: s.boots,
		}, nil
	case saidRenewAck:
		return ownership.RenewAck{Epoch: s.epoch, Sent: s.sent, Clock: s.clock}, nil
	case saidFarewell:
		return ownership.Farewell{Epoch: s.epoch}, nil
	case saidBehind:
		return ownership.Behind{Epoch: s.epoch}, nil
	case saidMissed:
		return ownership.Missed{Epoch: s.epoch}, nil
	case saidSecede:
		return ownership.Secede{Epoch: s.epoch, Recover: s.flag}, nil
	case saidSeceded:
		return ownership.Seceded{Epoch: s.epoch}, nil
	}
	return s.change(), nil
}

// change is the message, if it is about the next configuration.
func (s *said) change() ownership.Message {
	switch s.kind {
	case saidCanvass:
		return ownership.Canvass{Value: s.config}
	case saidConsent:
		return ownership.Consent{Value: s.config, Yes: s.flag}
	case saidPrepare:
		return ownership.Prepare{Epoch: s.epoch, Ballot: s.ballot}
	case saidPromise:
		return ownership.Promise{
			Epoch: s.epoch, Ballot: s.ballot, Accepted: s.accepted, Value: s.config,
		}
	case saidAccept:
		return ownership.Accept{Ballot: s.ballot, Value: s.config}
	case saidAccepted:
		return ownership.Accepted{Epoch: s.epoch, Ballot: s.ballot}
	case saidDecided:
		return ownership.Decided{Config: s.config}
	}
	return nil
}

// check reports a message that lacks a field without which its kind means nothing.
func (s *said) check() error {
	switch s.kind {
	case saidCanvass, saidConsent, saidAccept, saidDecided:
		if s.config == nil {
			return fmt.Errorf("of kind %d has no config", s.kind)
		}
	case saidPromise:
		if (s.accepted != 0) != (s.config != nil) {
			return fmt.Errorf("of kind %d has one of accepted and config; both or none are "+
				"accepted",
				s.kind)
		}
	case saidHello, saidJoin:
		if err := s.member.Check(); err != nil {
			return fmt.Errorf("of kind %d has a member that %w", s.kind, err)
		}
	}
	if s.needsEpoch() && s.epoch.Number == 0 {
		return fmt.Errorf("of kind %d has no epoch", s.kind)
	}
	return nil
}

// needsEpoch reports whether the kind is about an epoch.
func (s *said) needsEpoch() bool {
	switch s.kind {
	case saidRenew, saidRenewAck, saidFarewell, saidPrepare, saidPromise, saidAccepted, saidBehind,
		saidSecede, saidSeceded:
		return true
	}
	return false
}
