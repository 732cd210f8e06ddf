package overview

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"penstock/cluster"
	"penstock/rpc/admin"
	"penstock/rpc/history"
)

const (
	// answerWithin is how long a node looks for what the page of another one has asked.
	answerWithin = 300 * time.Millisecond
	// inquireWithin bounds how long a page waits for the answers of other nodes.
	inquireWithin = 800 * time.Millisecond
	// mostInquired is how many nodes are asked at once.
	mostInquired = 64
	// mostAgents is how many agents a page asks: there may be thousands.
	mostAgents = 32
	// GatherEvery is how often a page that is open asks all nodes.
	GatherEvery = time.Second
	// forgetAfter is how long a node remembers others after its last page was closed.
	forgetAfter = time.Minute
	// rememberFor is how long a node is remembered that does not answer any more, and is not asked.
	rememberFor = time.Hour
)

// Config makes an Overview. Node and Recorder are required.
type Config struct {
	Node     *cluster.Node
	Recorder *history.Recorder
	Network  Inquirer         // nil: the node is alone
	Roster   admin.Roster     // nil: versions and failed members are not known
	Started  time.Time        // of the node
	Ended    <-chan struct{}  // closed when the node ends; nil: never
	Now      func() time.Time // default time.Now
	Logger   *slog.Logger     // default slog.Default
}

// Inquirer carries a question to another node, and its answer back (peer.Lines).
type Inquirer interface {
	Inquire(ctx context.Context, to cluster.Member, question []byte) ([]byte, error)
}

// Overview is the whole cluster as the page of one node shows it. While a page is open the node
// asks all others once a second for what is new; else nothing is sent. It remembers each of them in
// 16 KiB and its latest events: about 4 MiB for 50 nodes, until a minute after the last page was
// closed. All methods are safe for concurrent use.
type Overview struct {
	Config
	mu       sync.Mutex // guards below
	watchers int
	running  bool
	idle     time.Time              // since when nobody watches
	nodes    map[uint64]*nodeMemory // by boot
	round    int                    // of asking; 0: none has ended
	more     chan struct{}          // closed at the end of a round
}

// nodeMemory is what a page knows of one start of a node.
type nodeMemory struct {
	asked  pulseQuestion // next
	series *history.Series
	events []history.Event
	last   pulse
	at     time.Time // of the last answer
}

// New makes one. It does nothing until a page asks.
func New(c Config) *Overview {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Overview{
		Config: c, nodes: map[uint64]*nodeMemory{}, more: make(chan struct{}),
	}
}

// targets are the other nodes that are asked: all members, and some agents.
func (o *Overview) targets() (list []cluster.Member) {
	v := o.Node.View()
	if v == nil || o.Network == nil {
		return nil
	}
	agents := 0
	for i, m := range v.Members {
		if i == v.Self || m.PeerAddr == "" {
			continue
		}
		if m.Role == cluster.RoleAgent {
			if agents++; agents > mostAgents {
				continue
			}
		}
		list = append(list, m)
	}
	return list
}

// AskAll asks this node and all others, and calls use with each reply, one at a time. skew is how
// far this node's wall clock is ahead of the other one. missing are the ids of the nodes that have
// not answered, sorted.
func (o *Overview) AskAll(
	ctx context.Context,
	about func(m *cluster.Member) *Question,
	use func(a *Reply, skew time.Duration),
) (missing []string) {
	ctx, cancel := context.WithTimeout(ctx, inquireWithin)
	defer cancel()
	var mu sync.Mutex // makes use one at a time, and guards missing
	var each sync.WaitGroup
	room := make(chan struct{}, mostInquired)
	missing = []string{}
	for _, m := range o.targets() {
		each.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			began := o.Now()
			a, err := o.inquire(ctx, m, about(&m))
			took := o.Now().Sub(began)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				o.Logger.Debug("a node does not answer the page", "node", m.ID, "err", err)
				missing = append(missing, m.ID)
				return
			}
			use(a, began.Add(took/2).Sub(time.UnixMilli(a.NowMs)))
		})
	}
	own, stop := context.WithTimeout(ctx, answerWithin)
	a := o.answer(own, about(nil))
	stop()
	mu.Lock()
	use(a, 0)
	mu.Unlock()
	each.Wait()
	slices.Sort(missing)
	return missing
}

// Everyone asks all nodes the same.
func Everyone(q *Question) func(*cluster.Member) *Question {
	return func(*cluster.Member) *Question { return q }
}

func (o *Overview) inquire(ctx context.Context, m cluster.Member, q *Question) (*Reply, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	answer, err := o.Network.Inquire(ctx, m, text)
	if err != nil {
		return nil, err
	}
	a := new(Reply)
	if err := json.Unmarshal(answer, a); err != nil {
		return nil, fmt.Errorf("the answer of %s to a page: %w", m.ID, err)
	}
	return a, nil
}

// Watch has the node ask the others until done is called. It returns when a first round has ended,
// or ctx.
func (o *Overview) Watch(ctx context.Context) (done func()) {
	o.mu.Lock()
	o.watchers++
	if !o.running {
		o.running = true
		go o.gather()
	}
	round, more := o.round, o.more
	o.mu.Unlock()
	if round == 0 {
		select {
		case <-more:
		case <-o.Ended:
		case <-ctx.Done():
		}
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.watchers--; o.watchers == 0 {
			o.idle = o.Now()
		}
	}
}

// gather asks all nodes once a second, and ends forgetAfter the last page was closed, or with the
// node.
func (o *Overview) gather() {
	tick := time.NewTicker(GatherEvery)
	defer tick.Stop()
	for {
		o.mu.Lock()
		if o.watchers == 0 && o.Now().Sub(o.idle) >= forgetAfter {
			o.running, o.round = false, 0
			clear(o.nodes)
			o.mu.Unlock()
			return
		}
		asks := o.watchers > 0
		o.mu.Unlock()
		if asks {
			o.gatherOnce()
		}
		select {
		case <-tick.C:
		case <-o.Ended:
			return
		}
	}
}

func (o *Overview) gatherOnce() {
	about := func(m *cluster.Member) *Question {
		o.mu.Lock()
		defer o.mu.Unlock()
		boot := o.Node.Boot()
		if m != nil {
			boot = m.Boot
		}
		q := pulseQuestion{}
		if known := o.nodes[boot]; known != nil {
			q = known.asked
		}
		return &Question{Pulse: &q}
	}
	o.AskAll(context.Background(), about, func(a *Reply, skew time.Duration) {
		if a.Pulse != nil {
			o.take(a, skew)
		}
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.nodes, func(_ uint64, m *nodeMemory) bool {
		return o.Now().Sub(m.at) > rememberFor
	})
	o.round++
	close(o.more)
	o.more = make(chan struct{})
}

// Overlap is how many seconds are asked for again: the last sample was not complete.
const Overlap = 3

// take remembers what a node has said.
func (o *Overview) take(a *Reply, skew time.Duration) {
	if skew > -time.Second && skew < time.Second {
		skew = 0 // the time that messages take makes it uncertain
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	m := o.nodes[a.Boot]
	if m == nil {
		m = &nodeMemory{series: history.NewSeries()}
		o.nodes[a.Boot] = m
	}
	p := a.Pulse
	shift := int64(skew.Round(time.Second) / time.Second)
	m.series.Take(p.Fine, shift)
	m.series.Take(p.Rough, shift)
	m.asked = pulseQuestion{
		Boot: a.Boot, Change: m.asked.Change,
		Fine: nextFrom(p.Fine, m.asked.Fine), Rough: nextFrom(p.Rough, m.asked.Rough),
	}
	for _, e := range p.Events {
		m.asked.Change = max(m.asked.Change, e.Change)
		e.AtMs += skew.Milliseconds()
		if e.UntilMs != 0 {
			e.UntilMs += skew.Milliseconds()
		}
		m.remember(e)
	}
	m.last, m.at = *p, o.Now()
	m.last.Fine, m.last.Rough, m.last.Events = history.Rows{}, history.Rows{}, nil
}

// nextFrom is from when on samples are asked for next time.
func nextFrom(r history.Rows, before int64) int64 {
	if len(r.Rows) == 0 {
		return before
	}
	return r.From + int64(len(r.Rows))*r.Step - Overlap*r.Step
}

// mostEvents bounds what a page remembers of one node.
const mostEvents = 256

// remember keeps an event, or what has changed of it.
func (m *nodeMemory) remember(e history.Event) {
	for i := range m.events {
		if m.events[i].ID == e.ID {
			m.events[i] = e
			return
		}
	}
	m.events = append(m.events, e)
	m.events = m.events[max(0, len(m.events)-mostEvents):]
}
