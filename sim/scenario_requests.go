package sim

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
)

// request reads a single request, of which everything is known.
func (d *draft) request(n ast.Node) {
	before := d.page.Faults()
	a := arrival{patience: cluster.DefaultDeadline, calls: []calling{{}}}
	places := fields(d, n, "a single request", requestFields, &a)
	if d.page.Faults() > before {
		return
	}
	if places["items"] == nil {
		d.page.Fault(n, "items", "is missing")
		return
	}
	d.plan.script = append(d.plan.script, a)
}

var requestFields = []field[arrival]{
	{"at", sets(spanOf(0, maxDuration), func(a *arrival) *time.Duration { return &a.at })},
	{"to", func(d *draft, n ast.Node, a *arrival) error {
		text, err := policy.Text(n)
		if err != nil {
			return err
		}
		a.calls = nil
		for _, word := range strings.Fields(text) {
			name, later, repeated := strings.Cut(word, "+")
			c := calling{node: d.index(name)}
			if c.node < 0 {
				return fmt.Errorf("%.40q is not a node; there are n1 to n%d", name,
					len(d.plan.machines))
			}
			if repeated {
				if c.after, err = time.ParseDuration(later); err != nil || c.after < 0 ||
					c.after > restAfter/2 {
					return fmt.Errorf(
						"%.40q must be a node and how much later it is asked again, up to %v, "+
							"like n2+300ms", word, restAfter/2)
				}
			}
			a.calls = append(a.calls, c)
		}
		if len(a.calls) == 0 {
			return errors.New("names no node")
		}
		return nil
	}},
	{"atomic", sets(policy.Flag, func(a *arrival) *bool { return &a.atomic })},
	{"refused", sets(policy.Flag, func(a *arrival) *bool { return &a.broken })},
	{"patience", sets(spanOf(1, time.Minute), func(a *arrival) *time.Duration {
		return &a.patience
	})},
	{"items", func(d *draft, n ast.Node, a *arrival) error {
		return d.items(n, func(n ast.Node) {
			it := requestItem{Item: cluster.Item{Cost: 1}, times: 1, broken: a.broken}
			places := fields(d, n, "an item", itemFields, &it)
			if it.brought {
				it.Limit = ""
			}
			switch hold := it.Hold; {
			case a.broken:
			case it.Op < cluster.OpReserve && hold != nil:
				d.page.Fault(n, "hold", "ttl and holder go with op: reserve, settle or extend")
			case it.Op == cluster.OpReserve &&
				(hold == nil || hold.TTL == 0 || it.ID == cluster.ID{}):
				d.page.Fault(n, "op", "reserve needs an id, which names the hold, and a ttl")
			case it.Op > cluster.OpReserve && (hold == nil || hold.ID == cluster.ID{}):
				d.page.Fault(n, "op", opNames[it.Op]+" needs hold: the id of a reservation")
			case it.Op == cluster.OpExtend && hold.TTL == 0:
				d.page.Fault(n, "op", "extend needs a ttl")
			case it.Op < cluster.OpReserve && it.Op != cluster.OpPeek:
				d.held(n, []string{limitName(&it.Item)}, false)
			}
			if it.Key == "" && !a.broken && places["key"] == nil {
				d.page.Fault(n, "key", "is missing")
			}
			for range it.times {
				a.items = append(a.items, it.Item)
			}
		})
	}},
}

// requestItem is an item while it is read.
type requestItem struct {
	cluster.Item
	brought bool // the client brings the limit along
	times   int64
	broken  bool // of a request that has to be refused
}

var itemFields = []field[requestItem]{
	{"limit", func(d *draft, n ast.Node, it *requestItem) (err error) {
		if it.broken {
			it.Limit, err = policy.Text(n)
			return err
		}
		it.Limit, err = d.limitName(n)
		return err
	}},
	{"brought", func(d *draft, n ast.Node, it *requestItem) (err error) {
		if it.brought, err = policy.Flag(n); err != nil || !it.brought {
			return err
		}
		l := d.page.Limit(it.Limit)
		if l == nil {
			return errors.New("goes with the name of a limit of the scenario")
		}
		it.Inline = mustLimit(l.Spec, l.Overrides()...)
		return nil
	}},
	{"key", func(_ *draft, n ast.Node, it *requestItem) error {
		key, err := policy.Text(n)
		if it.Key = key; err == nil && !it.broken &&
			(len(key) < cluster.MinKey || len(key) > cluster.MaxKey) {
			err = fmt.Errorf("has %d bytes; %d to %d are accepted", len(key), cluster.MinKey,
				cluster.MaxKey)
		}
		return err
	}},
	{"key_hex", func(_ *draft, n ast.Node, it *requestItem) error {
		key, err := hex.DecodeString(n.GetToken().Value)
		if it.Key = string(key); err != nil || len(key) < cluster.MinKey ||
			len(key) > cluster.MaxKey {
			return fmt.Errorf("must be the bytes of a key in hexadecimal digits, %d to %d bytes",
				cluster.MinKey, cluster.MaxKey)
		}
		return nil
	}},
	{"cost", func(_ *draft, n ast.Node, it *requestItem) error {
		cost, err := strconv.ParseInt(n.GetToken().Value, 10, 64)
		if it.Cost = cost; err != nil {
			return errors.New("must be a whole number of 64 bits")
		}
		return nil
	}},
	{"op", func(_ *draft, n ast.Node, it *requestItem) error {
		text, err := word(n, opNames[:]...)
		if err == nil { // otherwise it is no index of opNames
			it.Op = cluster.Op(slices.Index(opNames[:], text))
		}
		return err
	}},
	{"id", func(_ *draft, n ast.Node, it *requestItem) error {
		sequence, err := strconv.ParseUint(n.GetToken().Value, 10, 40)
		if it.ID = (cluster.ID{Origin: clientOrigin, Sequence: sequence}); err != nil ||
			sequence == 0 {
			return errors.New("must be a whole number from 1 on")
		}
		return nil
	}},
	{"hold", func(_ *draft, n ast.Node, it *requestItem) error {
		sequence, err := strconv.ParseUint(n.GetToken().Value, 10, 64)
		if it.terms().ID = (cluster.ID{Origin: clientOrigin, Sequence: sequence}); err != nil ||
			sequence == 0 {
			return errors.New("must be the id of a reservation, a whole number from 1 on")
		}
		return nil
	}},
	{"ttl", sets(spanOf(limiter.MinTTL, limiter.MaxTTL), func(it *requestItem) *time.Duration {
		return &it.terms().TTL
	})},
	{"holder", sets(oneLine, func(it *requestItem) *string { return &it.terms().Holder })},
	{"times", sets(countOf(1, cluster.MaxItems+1), func(it *requestItem) *int64 {
		return &it.times
	})},
}

// terms are what is said of a hold.
func (it *requestItem) terms() *cluster.HoldTerms {
	if it.Hold == nil {
		it.Hold = new(cluster.HoldTerms)
	}
	return it.Hold
}

var opNames = [...]string{
	cluster.OpTake: "take", cluster.OpPeek: "peek", cluster.OpReset: "reset",
	cluster.OpReserve: "reserve", cluster.OpSettle: "settle", cluster.OpExtend: "extend",
}
