package peer

import (
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/rpc/rpctest"
)

// sinkCarrier counts what is sent, and never answers.
type sinkCarrier struct {
	carrier
	mu   sync.Mutex
	sent int
}

func (c *sinkCarrier) send(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent += len(frame)
	return nil
}

// bareLine is a line over c that nobody writes to but callers.
func (s *station) bareLine(c carrier) *line {
	p := s.peers
	return &line{
		config: &p.config, stats: &p.stats, letters: &p.letters, to: lineTo{id: "n2", boot: 2},
		wake: make(chan struct{}, 1), out: c, outbox: outbox{sent: make(map[uint64]*letter)},
	}
}

// Promise: no request hangs past its deadline: callers do not send more than a peer that reads
// nothing has room for, however many come while one of them is about to send.
func TestCallersSendNoMoreThanThereIsRoomFor(t *testing.T) {
	s := newStations(t, 1)[0]
	key, all := strings.Repeat("k", cluster.MaxKey), 0
	for range 20 {
		sink := &sinkCarrier{}
		l := s.bareLine(sink)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				deadline := s.clock.Now().Add(50 * time.Millisecond)
				c := cluster.Call{Deadline: deadline, Ask: &cluster.Ask{
					Hop: 1, Deadline: deadline, Items: []cluster.AskItem{
						{Limit: rpctest.MustLimit(five), Key: key, Cost: 1},
						{Limit: rpctest.MustLimit(five), Key: key, Cost: 1},
					},
				}}
				if lt := l.post(&c); lt != nil {
					if lt.alone {
						l.start()
					}
					lt.await()
				}
			})
		}
		wg.Wait()
		if all += sink.sent; sink.sent > maxUnread {
			t.Fatalf("callers have sent %d bytes; want at most %d", sink.sent, maxUnread)
		}
	}
	if all == 0 { // a busy machine may be late for some of them
		t.Fatal("callers have sent nothing")
	}
}

// Promise: a peer that answers before it is asked brings nobody down. The letter of an ask that is
// just being written down is not its caller's to give back.
func TestAnswersToWhatWasNotAsked(t *testing.T) {
	s := newStations(t, 1)[0]
	l := s.bareLine(&sinkCarrier{})
	deadline := s.clock.Now().Add(time.Minute)
	c := cluster.Call{Deadline: deadline, Ask: &cluster.Ask{Hop: 1, Deadline: deadline}}
	lt := l.post(&c)
	lt.tag, lt.state, l.sent[1] = 1, letterSent, lt // as take has it while it writes
	guess := appendAnswer(nil, 1, &cluster.Answer{RingHash: 7})
	if err := l.read(guess); err != nil || lt.state != letterSent {
		t.Fatalf("a guess is taken for the answer, in state %d, %v", lt.state, err)
	}
	l.tag.Store(1)
	if err := l.read(guess); err != nil || lt.state != letterDone {
		t.Fatalf("the answer leaves the letter in state %d, %v", lt.state, err)
	}
	lt.await()
	if c.Answer == nil {
		t.Errorf("the call ends with %v", c.Err)
	}
}
