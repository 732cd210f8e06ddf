package catalog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/cluster"
)

const (
	// tellTimeout bounds how long a change waits for the answers of other nodes.
	tellTimeout = time.Second
	// lookEvery is how often a node compares its log with that of another node, in turn.
	lookEvery = 5 * time.Second
	// mostSent is about how many bytes of entries one message has.
	mostSent = 1 << 20
	// mostTold is how many nodes are told at once.
	mostTold = 64
)

// message is what nodes say to each other about the log, as JSON.
type message struct {
	// Hashes are those of the sender's log, 8 bytes a part, little endian. They ask for the entries
	// of the parts that differ.
	Hashes []byte `json:"hashes,omitempty"`
	// Entries are for the receiver's log. They ask for the entries of the same names.
	Entries []Entry `json:"entries,omitempty"`
}

// ErrAgent says that an agent has sent entries.
var ErrAgent = errors.New(
	"an agent may read the log of limits, and not add to it; put the limit at a member")

// Answer answers the message of another node. An agent may only ask.
func (c *Catalog) Answer(text []byte, agent bool) ([]byte, error) {
	var in, out message
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("a message about the log of limits: %w", err)
	}
	if agent && len(in.Entries) > 0 {
		return nil, ErrAgent
	}
	c.add(in.Entries)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(in.Hashes) > 0 {
		other, err := readHashes(in.Hashes)
		if err != nil {
			return nil, err
		}
		own := c.log.Hashes()
		out.Hashes = writeHashes(own)
		out.Entries = some(c.log.Parts(func(part int) bool { return own[part] != other[part] }))
	} else {
		seen := map[string]bool{}
		for _, e := range in.Entries {
			if !seen[e.Name] {
				seen[e.Name] = true
				out.Entries = append(out.Entries, c.log.History(e.Name)...)
			}
		}
		out.Entries = some(out.Entries)
	}
	return json.Marshal(&out)
}

// some are as many entries as one message may have.
func some(list []Entry) []Entry {
	size := 0
	for i := range list {
		if size += len(list[i].Limit) + 500; size > mostSent {
			return list[:i]
		}
	}
	return list
}

func writeHashes(h [parts]uint64) []byte {
	b := make([]byte, 0, 8*parts)
	for _, part := range h {
		b = binary.LittleEndian.AppendUint64(b, part)
	}
	return b
}

func readHashes(b []byte) (h [parts]uint64, err error) {
	if len(b) != 8*parts {
		return h, fmt.Errorf("a message about the log of limits has %d bytes of hashes, and not %d",
			len(b), 8*parts)
	}
	for i := range h {
		h[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return h, nil
}

// tellAll sends an entry to all other members, and merges what they know of its name.
func (c *Catalog) tellAll(ctx context.Context, e Entry) (reached int, missing []string) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	var mu sync.Mutex // guards what is returned
	var each sync.WaitGroup
	room := make(chan struct{}, mostTold)
	missing = []string{}
	for _, m := range c.others() {
		each.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			in, err := c.tell(ctx, m, &message{Entries: []Entry{e}})
			if err == nil {
				c.add(in.Entries)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				reached++
				return
			}
			missing = append(missing, m.ID)
			c.Logger.Warn("a node has not heard of a change of limits yet", "node", m.ID, "limit",
				e.Name, "err", err)
		})
	}
	each.Wait()
	slices.Sort(missing)
	return reached, missing
}

// others are all other members. Agents are not called: their certificates need not be valid for the
// address that they are seen at, and there may be thousands. They ask a member by themselves.
func (c *Catalog) others() (list []cluster.Member) {
	v := c.Node.View()
	if v == nil || c.Network == nil {
		return nil
	}
	for i, m := range v.Members {
		if i != v.Self && m.PeerAddr != "" && m.Role == cluster.RoleMember {
			list = append(list, m)
		}
	}
	return list
}

func (c *Catalog) tell(
	ctx context.Context,
	to cluster.Member,
	out *message,
) (in message, err error) {
	text, err := json.Marshal(out)
	if err != nil {
		return in, err
	}
	answer, err := c.Network.Tell(ctx, to, text)
	if err != nil {
		return in, err
	}
	if err := json.Unmarshal(answer, &in); err != nil {
		return in, fmt.Errorf("the answer of %s about the log of limits: %w", to.ID, err)
	}
	return in, nil
}

// Seen says that there is a new View.
func (c *Catalog) Seen() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Catch compares the log with that of any other node, and returns when one has answered, or none
// can be asked, or ctx ends.
func (c *Catalog) Catch(ctx context.Context) {
	for _, m := range c.others() {
		if c.compare(ctx, m) == nil || ctx.Err() != nil {
			return
		}
	}
}

// Run compares the log with those of other nodes until ctx ends: with nodes that are new at once,
// else with one after the other.
func (c *Catalog) Run(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	known := map[uint64]bool{} // boots
	for turn := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			there := map[uint64]bool{}
			for _, m := range c.others() {
				there[m.Boot] = known[m.Boot] || c.compare(ctx, m) == nil
			}
			known = there
		case <-look.C:
			if others := c.others(); len(others) > 0 {
				turn++
				// the next one follows if this one does not answer
				_ = c.compare(ctx, others[turn%len(others)])
			}
			if c.unsaved.Load() {
				c.mu.Lock()
				c.saveLocked()
				c.mu.Unlock()
			}
		}
	}
}

// ask has m say what its log is, and what of it this node lacks.
func (c *Catalog) ask(ctx context.Context, m cluster.Member) (message, error) {
	c.mu.Lock()
	own := c.log.Hashes()
	c.mu.Unlock()
	return c.tell(ctx, m, &message{Hashes: writeHashes(own)})
}

// compare has this node and m send each other what the other one lacks.
func (c *Catalog) compare(ctx context.Context, m cluster.Member) error {
	ctx, cancel := context.WithTimeout(ctx, 2*tellTimeout)
	defer cancel()
	in, err := c.ask(ctx, m)
	for err == nil && c.add(in.Entries) { // what differs may be more than one message has
		in, err = c.ask(ctx, m)
	}
	if err != nil {
		return err
	}
	other, err := readHashes(in.Hashes)
	if err != nil || c.Node.View().Me().Role == cluster.RoleAgent {
		return err
	}
	c.mu.Lock()
	own := c.log.Hashes()
	lacks := c.log.Parts(func(part int) bool { return own[part] != other[part] })
	c.mu.Unlock()
	for len(lacks) > 0 {
		now := some(lacks)
		if _, err := c.tell(ctx, m, &message{Entries: now}); err != nil {
			return err
		}
		lacks = lacks[len(now):]
	}
	return nil
}
