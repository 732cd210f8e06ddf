package redis

import (
	"errors"
	"strings"
	"sync"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/resp"
)

const (
	// roundItems is how many checks are decided at once. More would not be faster, and a client
	// that does not read its replies holds the memory of a round until it is cut off.
	roundItems = 256
	// roundCost is about what a round takes of a processor, and checkCost each of its commands.
	roundCost = 12 * time.Microsecond
	checkCost = 500 * time.Nanosecond
)

// round is what has arrived at a connection at once, and is decided at once: commands become items
// of one request until there are no more, a command comes that is no check, or the request is full;
// then the node decides, and the replies follow in order. Items of one request that concern one key
// are decided in their order (cluster.Node.Check), so it makes no difference to a client whether
// its commands travelled together. The memory is used again and again.
type round struct {
	door   *Server // these are the connection's
	wire   *wire
	client *client
	began  time.Time

	out     []byte
	items   [roundItems]cluster.Item
	replies [roundItems]replyKind // of items
	checks  int                   // items that wait for their decision
	decided [roundItems]cluster.Decision
	request cluster.Request
	refunds bool // one of items gives back, which is recorded
	ending  bool // the connection ends when the replies are written

	commands, errors uint64
	asked            uint64 // commands that the gate was asked for
}

var rounds = sync.Pool{New: func() any { return new(round) }}

func newRound(c *connection) *round {
	r := rounds.Get().(*round)
	r.door, r.wire, r.client, r.began = c.door, &c.wire, &c.client, c.now
	return r
}

// end adds the round to the door's counters, and gives its memory back. It returns the time.
func (r *round) end() time.Time {
	now := time.Now()
	r.count(now.Sub(r.began).Seconds())
	r.door, r.wire, r.client = nil, nil, nil
	r.commands, r.errors, r.asked, r.ending, r.refunds = 0, 0, 0, false, false
	rounds.Put(r)
	return now
}

func (r *round) count(seconds float64) {
	if r.commands == 0 && r.errors == 0 {
		return
	}
	stats := &r.door.stats
	stats.batches.Add(1)
	stats.commands.Add(r.commands)
	if r.errors > 0 {
		stats.errors.Add(r.errors)
	}
	// the client pays for commands that are no checks, too
	if gate := r.door.config.Gate; r.commands > r.asked && gate.Busy() {
		gate.Spend(r.client.origin(), r.work(r.commands-r.asked))
	}
	if r.door.seconds != nil {
		r.door.seconds.Observe(seconds)
		if r.asked > 0 {
			r.door.checks.Observe(seconds)
		}
	}
}

// work is what so many commands of the round take.
func (r *round) work(commands uint64) fair.Work {
	return fair.Work{
		Cost: roundCost + time.Duration(commands)*checkCost, Line: door.LineOf(r.wire.conn),
	}
}

// check adds an item to the round; reply says what to make of its decision. The key must stay where
// it is until then.
func (r *round) check(
	l *limiter.Limit, key []byte, cost int64, terms cluster.Terms, reply replyKind,
) (fault string) {
	if fault := keyFault(key); fault != "" {
		return fault
	}
	ask := access.Ask{Inline: true, Key: borrow(key)}
	switch {
	case cost < 0:
		ask.Act, r.refunds = access.GiveBack, true
	case cost == 0:
		ask.Act = access.Peek
	}
	if fault := r.client.permit(ask); fault != "" {
		return fault
	}
	it := &r.items[r.checks]
	*it = cluster.Item{Inline: l, Key: borrow(key), Cost: cost, Terms: terms}
	if cost == 0 {
		it.Op = cluster.OpPeek
	}
	r.replies[r.checks] = reply
	if r.checks++; r.checks == len(r.items) {
		r.decide()
	}
	return ""
}

// busy is said to what is refused. Most of it comes when there is no time.
var busy = "BUSY " + fair.ErrOverloaded.Error()

// decide has the node decide on the items of the round, and writes their replies down.
func (r *round) decide() {
	n := r.checks
	if n == 0 {
		return
	}
	r.checks = 0
	r.asked += uint64(n)
	r.request = cluster.Request{Items: r.items[:n]}
	out := r.decided[:n]
	if err := r.charge(out); err != nil {
		text := busy
		if !errors.Is(err, fair.ErrOverloaded) {
			text = "ERR " + door.Explain(err).Text
		}
		for range n {
			r.fail(text)
		}
	} else {
		for i := range out {
			r.out = r.replies[i].append(r.out, &out[i], r.items[i].Inline, r.items[i].Cost)
		}
	}
	clear(r.items[:n]) // they point into buffers of connections
	r.refunds = false
	r.relieve()
}

// charge has the node decide on the request of the round, unless there are too many.
func (r *round) charge(out []cluster.Decision) error {
	if gate := r.door.config.Gate; gate != nil {
		client := r.client.origin()
		if err := gate.Enter(client, r.work(uint64(len(out)))); err != nil {
			return err
		}
		defer gate.Leave(client)
	}
	if config := &r.door.config; r.refunds {
		return r.client.caller().Recorder(config.Audit).Check(config.Node, &r.request, out)
	}
	return r.door.config.Node.Check(&r.request, out)
}

// decideNow decides items after all that came before.
func (r *round) decideNow(items []cluster.Item) (out []cluster.Decision, fault string) {
	r.decide()
	out = make([]cluster.Decision, len(items))
	if err := r.door.config.Node.Check(&cluster.Request{Items: items}, out); err != nil {
		return nil, "ERR " + door.Explain(err).Text
	}
	return out, ""
}

// begin makes room for a reply that is no decision: those before it come first.
func (r *round) begin() *round {
	r.decide()
	r.relieve()
	return r
}

// relieve keeps the replies that were not sent yet from piling up.
func (r *round) relieve() {
	if len(r.out) >= repliesGathered {
		r.write()
	}
}

// write sends the replies that there are.
func (r *round) write() {
	if len(r.out) == 0 {
		return
	}
	if r.wire.write(r.out, r.began) != nil {
		r.ending = true
	}
	if r.out = r.out[:0]; cap(r.out) > 4*repliesGathered {
		r.out = nil
	}
}

// fail replies with an error.
func (r *round) fail(text string) {
	r.begin()
	switch kind, _, _ := strings.Cut(text, " "); kind {
	case "NOAUTH", "WRONGPASS":
		r.door.refused.Unknown(r.client.caller().Addr)
	case "NOPERM":
		r.door.refused.Forbidden(r.client.caller().Addr)
	}
	r.errors++
	r.out = resp.AppendError(r.out, text)
}

// say replies with a short text.
func (r *round) say(text string) {
	r.begin()
	r.out = resp.AppendStatus(r.out, text)
}

func (r *round) number(n int64) {
	r.begin()
	r.out = resp.AppendInt(r.out, n)
}

func (r *round) text(s string) {
	r.begin()
	r.out = resp.AppendBulk(r.out, s)
}
