// Package access says which client may do what. A client is a token or a certificate that a file
// names (file.go), together with its rights. Follow one request:
//
//  1. A door finds the Ticket of the request: by its token, or else by the certificate of its
//     connection (clients.go). A request without one is not authenticated.
//  2. The door asks Client.May about a page or a method, or Client.MayAsk about each item, before
//     anything is charged. The answer is nil, or an error that names the missing right.
//
// A ticket outlives one request where a connection does: it looks its client up again after the
// file has changed, so that a token that was taken away stops working at once.
package access

import (
	"fmt"
	"slices"
	"strings"
)

// Right is a set of rights.
type Right uint8

// The rights. Check and Refund are about items, the others about pages and methods.
const (
	Check Right = 1 << iota // take, reserve and settle; of some limits and keys
	// give back, by a negative cost or a reset; of the same limits and keys
	Refund
	Read    // see members, limits, keys and holds
	Write   // change limits, reset and settle any key, drain, take profiles
	Metrics // read /metrics
)

// rightNames are the rights as the file writes them.
var rightNames = []struct {
	right Right
	name  string
}{
	{Check, "check"},
	{Refund, "refund"},
	{Read, "admin: read"},
	{Write, "admin: write"},
	{Metrics, "metrics"},
}

func (r Right) String() string {
	var names []string
	for _, n := range rightNames {
		if r&n.right != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ", ")
}

// Client is one client with its rights. It is never changed.
type Client struct {
	Name   string
	rights Right
	inline bool     // it may bring limits along
	limits []string // names of limits; with * at the end, all that begin so
	keys   []string // prefixes; nil: any key
	all    bool     // it may do everything
}

// String is what the client may do, for people.
func (c *Client) String() string {
	if c.all {
		return "everything"
	}
	text := c.rights.String()
	if c.inline {
		text += ", inline"
	}
	if c.limits != nil {
		text += fmt.Sprintf(", limits %q", c.limits)
	}
	if c.keys != nil {
		text += fmt.Sprintf(", keys %q", c.keys)
	}
	return text
}

// everybody is the client of a node that demands nothing.
var everybody = &Client{Name: "anybody", all: true}

// Denied says that a client lacks a right.
type Denied struct {
	Client string
	Right  string // that is missing, as the file writes it
}

func (d *Denied) Error() string {
	return fmt.Sprintf("authorization: the client %q lacks the right %s; the file of "+
		"--auth-token-file gives rights", d.Client, d.Right)
}

// Named reports whether the client is one of several that a file names.
func (c *Client) Named() bool { return !c.all }

func (c *Client) lacks(format string, a ...any) error {
	return &Denied{c.Name, fmt.Sprintf(format, a...)}
}

// May is nil if the client has one of these rights.
func (c *Client) May(right Right) error {
	if c.all || c.rights&right != 0 {
		return nil
	}
	return c.lacks("%v", right)
}

// MayBring is nil if the client may bring limits along.
func (c *Client) MayBring() error {
	if c.all || c.rights&Check != 0 && c.inline {
		return nil
	}
	return c.lacks("check: {inline: true}")
}

// Act is what an item does.
type Act uint8

// The acts.
const (
	Take     Act = iota
	GiveBack     // a negative cost
	Peek
	Reset
	Settle // or extend
)

// instead is the right that allows an act on every key, besides Check.
var instead = [...]Right{Peek: Read, Reset: Write, Settle: Write}

// Ask is an item of a request.
type Ask struct {
	Act    Act
	Limit  string // name of a limit that the node has
	Inline bool   // the item brings its limit along
	Domain string // of Envoy, if the limit that is brought along shares its counters; or empty
	Key    string
}

// MayAsk is nil if the client may do that.
func (c *Client) MayAsk(a Ask) error {
	if c.all || c.rights&instead[a.Act] != 0 {
		return nil
	}
	switch {
	case c.rights&Check == 0:
		return c.lacks("check")
	case a.Inline && !c.inline:
		return c.MayBring()
	case !c.mayCheck(a):
		return c.lacks("check for the limit %.100q", a.named())
	case c.keys != nil && !slices.ContainsFunc(c.keys, func(prefix string) bool {
		return strings.HasPrefix(a.Key, prefix)
	}):
		return c.lacks("check for this key; its keys begin with %q", c.keys)
	case (a.Act == GiveBack || a.Act == Reset) && c.rights&Refund == 0:
		return c.lacks("refund")
	}
	return nil
}

// named is the limit that the client must have in its entry; empty: it needs none.
func (a *Ask) named() string {
	if a.Inline {
		return a.Domain
	}
	return a.Limit
}

// mayCheck reports whether the client has the limit of a in its entry, if it needs that.
func (c *Client) mayCheck(a Ask) bool {
	return a.Inline && a.Domain == "" || slices.ContainsFunc(c.limits, func(pattern string) bool {
		return matches(pattern, a.named())
	})
}

func matches(pattern, name string) bool {
	if prefix, many := strings.CutSuffix(pattern, "*"); many {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
