// Package catalog keeps the limits that are put into a whole cluster. Follow one change:
//
//  1. A client puts a limit at any node (Catalog.Put). The node gives the change a Version, one
//     above all that it has seen, writes it to its file, and puts it in force.
//  2. It sends the Entry to all other nodes at once. Each merges it into its Log, and answers with
//     all that it knows of that limit. If another client has changed the limit elsewhere at the
//     same time, one of both versions is the later one, and the sender of the other one learns that
//     from the answer: one wins, the other is told.
//  3. A node that was not reached, was down, or joins later compares hashes of its Log with those
//     of another node, and they send each other what differs (Catalog.Run, Catalog.Catch).
//
// No node leads. A Log is a union of entries of which the latest count, so the order in which nodes
// hear of them does not matter, nor how often. A cluster that is cut may put one limit on both
// sides; after the heal all nodes have the later version in force, and both in its history.
//
// What is put wins over files: all nodes decide by it, whichever files they have.
package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
)

// MaxLive bounds the limits that are put at one time.
const MaxLive = 1000

// Errors of changes. With each of them nothing was changed.
var (
	ErrGiven = errors.New(
		"name: a limit of this name comes from a file, and was not put; change it there, or put " +
			"another one over it",
	)
	ErrNotPut  = errors.New("name: no limit of this name was put")
	ErrNoEntry = errors.New("version: the log has no such entry of this limit; see its history")
	ErrManyPut = fmt.Errorf(
		"limit: %d limits are put already, which is the most; delete some, or write "+
			"them into a file",
		MaxLive,
	)
	ErrFull = fmt.Errorf(
		"limit: the log knows %d names, deleted ones among them, which is the most; put the "+
			"limit under one of these",
		MaxNames,
	)
	ErrNoVersion = errors.New("version: the last one that there is was given; stop all nodes, " +
		"and move their files of limits that were put away")
	ErrNotSaved = errors.New("limit: the log of limits cannot be saved, so nothing was changed")
)

// ConflictError says that somebody else has changed the limit.
type ConflictError struct {
	Head     Entry   // in force
	Expected Version // by the writer; of a race, the version that has lost
	Raced    bool    // both changes were made at the same time
}

func (e *ConflictError) Error() string {
	by := ""
	if e.Head.By != "" {
		by = " by " + e.Head.By
	}
	if e.Raced {
		return fmt.Sprintf(
			"version: the limit was changed elsewhere at the same time, and %s%s is in force "+
				"instead of %s; "+
				"read the limit again, and decide anew",
			e.Head.Version,
			by,
			e.Expected,
		)
	}
	return fmt.Sprintf(
		"version: the limit is at %s%s, and not at %s; read it again, and decide anew",
		e.Head.Version, by, e.Expected)
}

// Network carries a message of the catalog to another node, and its answer back.
type Network interface {
	Tell(ctx context.Context, to cluster.Member, message []byte) ([]byte, error)
}

// Config makes a Catalog. Node is required.
type Config struct {
	Node    *cluster.Node
	Network Network          // nil: the node is alone
	File    string           // that keeps the log; empty: none does
	Now     func() time.Time // default time.Now
	Logger  *slog.Logger     // default slog.Default
}

// Catalog is a node's part in it. All methods are safe for concurrent use.
type Catalog struct {
	Config
	unsaved atomic.Bool   // the file lacks what the log has
	failed  atomic.Uint64 // times that the file was not written
	wake    chan struct{} // gets a token when there is a new View

	mu      sync.Mutex // guards below
	log     *Log
	inForce cluster.Limits
}

// New reads the file, and puts in force what it says.
func New(c Config) (*Catalog, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	k := &Catalog{Config: c, wake: make(chan struct{}, 1), log: NewLog(), inForce: cluster.Limits{}}
	if c.File == "" {
		return k, nil
	}
	list, err := read(c.File)
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addLocked(list)
	return k, nil
}

// Outcome is what came of a change.
type Outcome struct {
	Entry
	Replaced bool     // a limit that was put was there before
	Reached  int      // other nodes that have it
	Missing  []string // ids of those that have not answered; they get it later
}

// Put gives all nodes a limit. expect is the version that it replaces; nil: any. The error is a
// *ConflictError or one of those above.
func (c *Catalog) Put(
	ctx context.Context,
	by string,
	l *limiter.Limit,
	expect *Version,
) (Outcome, error) {
	// as it will be when it has travelled: the bytes are compared, and their number is bounded
	text, err := json.Marshal(json.RawMessage(policy.Format(l)))
	if err != nil {
		return Outcome{}, err
	}
	switch again, err := Define(text); {
	case err != nil:
		return Outcome{}, &cluster.InputError{
			Field:  "limit",
			Reason: "cannot be written as in a file: " + err.Error(),
		}
	case !again.SameAs(l):
		return Outcome{}, &cluster.InputError{
			Field:  "limit",
			Reason: "has what no file can say; leave it out",
		}
	case len(text) > MaxLimit:
		return Outcome{}, &cluster.InputError{
			Field: "limit", Reason: fmt.Sprintf("has %d bytes as JSON; at most %d are accepted, "+
				"write it into a file", len(text), MaxLimit),
		}
	}
	return c.change(ctx, by, l.Name, text, expect)
}

// Delete takes a limit away that was put, at all nodes. One of a file with that name is in force
// again.
func (c *Catalog) Delete(ctx context.Context, by, name string, expect *Version) (Outcome, error) {
	return c.change(ctx, by, name, nil, expect)
}

// Rollback puts a limit as it was with a version; if it was deleted, it is deleted again.
func (c *Catalog) Rollback(
	ctx context.Context,
	by, name string,
	to Version,
	expect *Version,
) (Outcome, error) {
	history := c.History(name)
	i := slices.IndexFunc(history, func(e Entry) bool { return e.Version == to })
	switch {
	case len(history) == 0:
		return Outcome{}, ErrNotPut
	case i < 0:
		return Outcome{}, ErrNoEntry
	}
	return c.change(ctx, by, name, history[i].Limit, expect)
}

// change writes an entry, and tells the other nodes.
func (c *Catalog) change(
	ctx context.Context,
	by, name string,
	limit []byte,
	expect *Version,
) (Outcome, error) {
	e, replaced, err := c.write(by, name, limit, expect)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Entry: e, Replaced: replaced, Missing: []string{}}
	out.Reached, out.Missing = c.tellAll(ctx, e)
	history := c.History(name)
	if !superseded(&e, history) {
		return out, &ConflictError{Head: history[0], Expected: e.Version, Raced: true}
	}
	return out, nil
}

// write makes the entry at this node.
func (c *Catalog) write(
	by, name string,
	limit []byte,
	expect *Version,
) (e Entry, replaced bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := c.log.Head(name)
	replaced = head.Name != "" && !head.Deleted()
	if err := c.refuseLocked(&head, name, limit, expect); err != nil {
		return e, false, err
	}
	if e = c.log.Next(c.Node.ID(), name); e.Version.Counter > maxCounter {
		return e, false, ErrNoVersion
	}
	// what is no UTF-8 does not travel as it is, and the logs would differ for ever
	e.By = strings.ToValidUTF8(by, "\uFFFD")
	e.AtMs, e.Limit = c.Now().UnixMilli(), limit
	if c.File != "" {
		if err := write(c.File, append(c.log.Parts(all), e)); err != nil {
			c.failed.Add(1)
			return e, false, fmt.Errorf("%w: %w", ErrNotSaved, err)
		}
		c.savedLocked(true)
	}
	c.log.Merge(e)
	c.applyLocked([]string{name})
	return e, replaced, nil
}

// refuseLocked says why a change of the limit with this head is not made.
func (c *Catalog) refuseLocked(head *Entry, name string, limit []byte, expect *Version) error {
	replaced := head.Name != "" && !head.Deleted()
	switch {
	case expect != nil && *expect != head.Version && (replaced || *expect != Version{}):
		return &ConflictError{Head: *head, Expected: *expect}
	case limit == nil && !replaced && c.Node.Given(name) != nil:
		return ErrGiven
	case limit == nil && !replaced:
		return ErrNotPut
	case !replaced && c.log.Live() >= MaxLive:
		return ErrManyPut
	case head.Name == "" && len(c.log.names) >= MaxNames:
		return ErrFull
	}
	return c.checkParents(name, limit)
}

// checkParents refuses a change after which a limit would lack its parent, or have one that is
// none. It knows the limits in force at this node; where others have put limits at the same time,
// each node lives with what comes of it (cluster/tree.go).
func (c *Catalog) checkParents(name string, limit []byte) error {
	before, after := c.Node.Limits(), cluster.Limits{}
	maps.Copy(after, before)
	delete(after, name)
	if given := c.Node.Given(name); given != nil && limit == nil {
		after[name] = given // that of the file is in force again
	}
	if limit != nil {
		l, err := Define(limit)
		if err != nil {
			return err
		}
		after[name] = l
	}
	var spec *limiter.SpecError
	if !errors.As(cluster.CheckParents(before, after), &spec) {
		return nil
	}
	field := "name"
	if limit != nil {
		field = "limit." + spec.Field
	}
	return &cluster.InputError{Field: field, Reason: "with this change, the parent " + spec.Reason}
}

func all(int) bool { return true }

// add merges entries, and reports whether that has changed anything.
func (c *Catalog) add(list []Entry) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if changed = c.addLocked(list); changed {
		c.saveLocked()
	}
	return changed
}

func (c *Catalog) addLocked(list []Entry) (changed bool) {
	names := map[string]bool{}
	for _, e := range list {
		if err := e.check(); err != nil {
			c.Logger.Warn("an entry of the log of limits is left out", "err", err)
			continue
		}
		if c.log.Merge(e) {
			names[e.Name] = true
		}
	}
	c.applyLocked(slices.Sorted(maps.Keys(names)))
	return len(names) > 0
}

// saveLocked writes what came from other nodes. They have it too, so a file that cannot be written
// does not keep it from being in force; Run tries again.
func (c *Catalog) saveLocked() {
	if c.File == "" {
		return
	}
	err := write(c.File, c.log.Parts(all))
	c.savedLocked(err == nil)
	if err != nil {
		c.failed.Add(1)
		c.Logger.Error("limits that were put are in force, but not saved; trying again",
			"file", c.File, "err", err)
	}
}

// applyLocked puts in force what the log says of these names.
func (c *Catalog) applyLocked(names []string) {
	if len(names) == 0 {
		return
	}
	next := maps.Clone(c.inForce)
	for _, name := range names {
		head := c.log.Head(name)
		delete(next, name)
		if head.Deleted() {
			continue
		}
		l, err := Define(head.Limit)
		if err == nil && l.Name != name {
			err = fmt.Errorf("it defines %.80q", l.Name)
		}
		if err != nil {
			c.Logger.Error("a limit that was put is not in force here: this release cannot read it",
				"limit", name, "version", head.Version.String(), "err", err)
			continue
		}
		next[name] = l
	}
	c.inForce = next
	c.Node.PutLimits(next)
}

// Head is the entry of a name in force; the zero Entry if it has none.
func (c *Catalog) Head(name string) Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Head(name)
}

// History is what is remembered of a name, or of all names if it is empty: the latest first.
func (c *Catalog) History(name string) (list []Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != "" {
		return c.log.History(name)
	}
	list = c.log.Parts(all)
	slices.SortFunc(list,
		func(a, b Entry) int { return cmp.Or(b.compare(&a), cmp.Compare(a.Name, b.Name)) })
	return list
}

// SaveErrors counts the times that the file was not written.
func (c *Catalog) SaveErrors() uint64 { return c.failed.Load() }

// Format writes a limit as Define reads it.
func Format(l *limiter.Limit) []byte { return policy.Format(l) }

// Define reads one limit that is written as in a file, or as JSON.
func Define(text []byte) (*limiter.Limit, error) { return policy.Define(text) }
