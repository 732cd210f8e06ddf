package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

type resetVerb struct {
	Limit  string `arg:"" optional:"" help:"Name of the limit."`
	Key    string `arg:"" optional:"" help:"The key, 1 to 1024 bytes."`
	Prefix string `help:"Instead of a key: all keys of the limit that begin so."`
	Of     string `name:"limit" help:"Name of the limit, if it is not an argument."`
	inline
	remote
	output
}

func (v *resetVerb) Run(sh shell) error {
	if v.Of != "" && v.Limit != "" {
		return errors.New("--limit: the limit is the first argument already; give it once")
	}
	if v.Of != "" {
		v.Limit = v.Of
	}
	switch {
	case v.Limit == "":
		return errors.New(
			"limit: is missing; give a limit and a key, or --limit NAME --prefix PREFIX")
	case v.Prefix != "" && v.Key != "":
		return errors.New("--prefix: a key is given too; give one of the two")
	case v.Prefix != "" && v.given():
		return errors.New("--prefix: is for limits that the cluster has by name")
	case v.Prefix != "":
		return v.resetAll(sh)
	case v.Key == "":
		return errors.New("key: is empty; give a key, or --prefix PREFIX for all that begin so")
	}
	k := keyed{v.Limit, v.Key, v.inline}
	d, err := k.decide(nil, v.remote, func(q remoteCall) ([]*penstockv1.Decision, error) {
		out, err := limitsOf(q.client).Reset(q.ctx, &penstockv1.ResetRequest{Items: q.items})
		return out.GetDecisions(), err
	})
	if err != nil {
		return err
	}
	if d.Degraded {
		return fmt.Errorf("not done: %s, which owns the key, cannot be reached; try again", d.Owner)
	}
	d.done = "reset"
	return d.print(sh.out, v.output)
}

// resetList says what became of the keys with a prefix.
type resetList struct {
	Limit   string   `json:"limit"`
	Prefix  string   `json:"prefix"`
	Reset   int      `json:"reset"`
	Failed  int      `json:"failed"`  // their owners did not answer
	Missing []string `json:"missing"` // members that did not answer: their keys are as they were
}

// resetAll has each member list its keys, page by page, and resets those of the limit.
func (v *resetVerb) resetAll(sh shell) error {
	list := resetList{Limit: v.Limit, Prefix: v.Prefix}
	var mu sync.Mutex // guards list and refused
	var refused error
	missing, err := v.askMembers(func(ctx context.Context, c *client.Client) (func(), error) {
		for cursor := ""; ; {
			page, err := adminOf(c).Keys(ctx, &penstockv1.KeysRequest{
				Prefix: []byte(v.Prefix), Count: 1000, Cursor: cursor,
			})
			if err != nil {
				return func() {}, err
			}
			reset, failed, err := resetPage(ctx, c, v.Limit, page.Keys)
			mu.Lock()
			list.Reset += reset
			list.Failed += failed
			if err != nil && refused == nil {
				refused = client.Explain(err, v.Addr)
			}
			mu.Unlock()
			if cursor = page.Next; cursor == "" || err != nil {
				return func() {}, err
			}
		}
	})
	list.Missing = missing
	if err != nil {
		return err
	}
	if refused != nil && list.Reset == 0 {
		return refused
	}
	if err := v.print(sh.out, list, func(w io.Writer) error {
		begin := "begin"
		if list.Reset == 1 {
			begin = "begins"
		}
		_, err := fmt.Fprintf(w, "reset %s of %s that %s with %q\n",
			some(list.Reset, "key"), list.Limit, begin, list.Prefix)
		return err
	}); err != nil {
		return err
	}
	if list.Failed > 0 {
		return fmt.Errorf("%d keys are not reset: their owners cannot be reached; try again",
			list.Failed)
	}
	return unasked(missing)
}

// resetPage resets the keys of one limit; failed of them could not be.
func resetPage(
	ctx context.Context, c *client.Client, limit string, keys []*penstockv1.KeyState,
) (reset, failed int, err error) {
	keys = slices.DeleteFunc(keys,
		func(k *penstockv1.KeyState) bool { return k.LimitName != limit })
	if len(keys) == 0 {
		return 0, 0, nil
	}
	in := &penstockv1.ResetRequest{}
	for _, k := range keys {
		in.Items = append(in.Items, &penstockv1.Item{Limit: limit, Key: k.Key})
	}
	out, err := limitsOf(c).Reset(ctx, in)
	for _, d := range out.GetDecisions() {
		if d.Degraded && !d.Allowed {
			failed++
		}
	}
	return len(out.GetDecisions()) - failed, failed, err
}

type creditVerb struct {
	Limit string `arg:"" help:"Name of the limit."`
	Key   string `arg:"" help:"The key, 1 to 1024 bytes."`
	Units int64  `arg:"" help:"Units to give back. No key has more than its limit."`
	remote
	output
}

func (v *creditVerb) Run(sh shell) error {
	if v.Units < 1 {
		return fmt.Errorf("units: is %d; give 1 or more", v.Units)
	}
	var d decision
	err := v.ask(func(ctx context.Context, c *client.Client) error {
		out, err := adminOf(c).Credit(ctx, &penstockv1.CreditRequest{
			Limit: v.Limit, Key: []byte(v.Key), Units: v.Units,
		})
		if err == nil {
			d = decisionOf(v.Key, out.Decision)
		}
		return err
	})
	if err != nil {
		return aboutOne(err)
	}
	d.done = "credited"
	return d.print(sh.out, v.output)
}
