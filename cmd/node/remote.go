package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc"
	"penstock/rpc/client"
)

// remote is how a verb reaches a running node.
type remote struct {
	Addr    []string      `default:"127.0.0.1:7948" placeholder:"HOST:PORT" help:"gRPC door of a node, or several with commas: the first that answers. Default: 127.0.0.1:7948."`
	Timeout time.Duration `default:"2s" help:"How long to wait for the answer."`
	credentials
}

// credentials are what a client shows and demands where nodes are protected.
type credentials struct {
	TLS           bool   `name:"tls" help:"Speak TLS, and trust the authorities of this machine."`
	TLSCA         string `name:"tls-ca" type:"path" placeholder:"FILE" help:"Speak TLS, and trust this authority."`
	TLSCert       string `name:"tls-cert" type:"path" placeholder:"FILE" help:"Certificate to show, with --tls-key."`
	TLSKey        string `name:"tls-key" type:"path" placeholder:"FILE" help:"Private key of --tls-cert."`
	AuthTokenFile string `type:"path" placeholder:"FILE" help:"Bearer token to send."`
}

// dial makes a client for addrs.
func (a credentials) dial(addrs []string) (*client.Client, error) {
	if len(addrs) == 0 {
		addrs = []string{""} // of --addr=
	}
	c := client.Config{Targets: addrs}
	for _, addr := range addrs {
		if _, err := parseTarget(addr); err != nil {
			return nil, err
		}
	}
	var err error
	if a.AuthTokenFile != "" {
		if c.Token, err = readToken(a.AuthTokenFile); err != nil {
			return nil, err
		}
	}
	if c.TLS, err = a.config(); err != nil {
		return nil, err
	}
	return client.New(c)
}

// parseTarget reads an address of --addr: unlike a door of serve, it cannot be off.
func parseTarget(addr string) (place, error) {
	d, err := parseDoor("--addr", addr, true)
	if err != nil || d.off() {
		return d, fmt.Errorf("--addr %q: give host:port or unix:///path", addr)
	}
	return d, nil
}

// config is nil for plaintext.
func (a credentials) config() (*tls.Config, error) {
	if (a.TLSCert == "") != (a.TLSKey == "") {
		return nil, errors.New("--tls-cert and --tls-key belong together; one of them is missing")
	}
	if a.TLSCA != "" || a.TLSCert != "" {
		return rpc.ClientTLS(a.TLSCert, a.TLSKey, a.TLSCA)
	}
	if a.TLS {
		return &tls.Config{MinVersion: tls.VersionTLS12}, nil
	}
	return nil, nil
}

// checkTimeout refuses a --timeout that no answer could meet, or that would mean to wait for ever.
func checkTimeout(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("--timeout %v: give more than 0s, as in 2s", d)
	}
	return nil
}

// ask runs one question with the verb's timeout.
func (r remote) ask(question func(context.Context, *client.Client) error) error {
	if err := checkTimeout(r.Timeout); err != nil {
		return err
	}
	c, err := r.dial(r.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), r.Timeout)
	defer cancel()
	return client.Explain(question(ctx, c), r.Addr)
}

// adminOf and limitsOf are the services of the cluster that c is connected to.
func adminOf(c *client.Client) penstockv1.AdminClient { return penstockv1.NewAdminClient(c.Conn()) }

func limitsOf(c *client.Client) penstockv1.RateLimiterClient {
	return penstockv1.NewRateLimiterClient(c.Conn())
}

// checkItems charges items, which may bring limits along.
func checkItems(
	ctx context.Context, c *client.Client, items []*penstockv1.Item,
) ([]*penstockv1.Decision, error) {
	out, err := limitsOf(c).Check(ctx, &penstockv1.CheckRequest{Items: items})
	return out.GetDecisions(), err
}

// aboutOne leaves out of an error that the item it is about is the first: the command line has one.
func aboutOne(err error) error {
	if err == nil {
		return nil
	}
	if words, found := strings.CutPrefix(err.Error(), "items[0]."); found {
		return errors.New(words)
	}
	return err
}

// inline is a limit that comes with the request.
type inline struct {
	Algorithm  string `group:"inline" placeholder:"NAME" help:"gcra, fixed_window or sliding_window."`
	LimitCount int64  `group:"inline" placeholder:"N" help:"Units per --per."`
	Per        per    `group:"inline" placeholder:"WINDOW" help:"Length of the window, as in 10s, 1h, 7d or day."`
	Burst      int64  `group:"inline" placeholder:"N" help:"gcra: most units at once. Default: --limit-count."`
	FirstHit   bool   `group:"inline" help:"fixed_window: begin with the first request, not with the clock."`
}

// per is the length of a window in the words of limits files.
type per time.Duration

// UnmarshalText reads "10s".
func (p *per) UnmarshalText(text []byte) error {
	d, err := limiter.ParsePer(string(text))
	*p = per(d)
	return err
}

var algorithms = map[string]struct {
	limiter limiter.Algorithm
	wire    penstockv1.Algorithm
}{
	"gcra":           {limiter.GCRA, penstockv1.Algorithm_ALGORITHM_GCRA},
	"fixed_window":   {limiter.FixedWindow, penstockv1.Algorithm_ALGORITHM_FIXED_WINDOW},
	"sliding_window": {limiter.SlidingWindow, penstockv1.Algorithm_ALGORITHM_SLIDING_WINDOW},
}

// given reports whether the command line describes a limit.
func (l inline) given() bool { return l != inline{} }

// limit checks the limit and gives it both as the arithmetic and as the wire have it.
func (l inline) limit(name string) (*limiter.Limit, *penstockv1.InlineLimit, error) {
	a, known := algorithms[l.Algorithm]
	if !known {
		return nil, nil, fmt.Errorf("--algorithm %q: choose gcra, fixed_window or "+
			"sliding_window", l.Algorithm)
	}
	window := time.Duration(l.Per)
	spec := limiter.Spec{
		Name: name, Algorithm: a.limiter, Limit: l.LimitCount, Per: window,
		Burst: l.Burst,
	}
	wire := &penstockv1.InlineLimit{
		Name: name, Algorithm: a.wire, Limit: l.LimitCount, PerMs: window.Milliseconds(),
		Burst: l.Burst,
	}
	if l.FirstHit {
		spec.Anchor, wire.Anchor = limiter.FirstHit, penstockv1.Anchor_ANCHOR_FIRST_HIT
	}
	made, err := limiter.New(spec)
	if err != nil {
		return nil, nil, flagError(err)
	}
	return made, wire, nil
}

// flagError names the flag of a field that limiter.New refuses.
func flagError(err error) error {
	var spec *limiter.SpecError
	if !errors.As(err, &spec) {
		return err
	}
	flags := map[string]string{"limit": "--limit-count", "anchor": "--first-hit"}
	return fmt.Errorf("%s: %s", cmp.Or(flags[spec.Field], "--"+spec.Field), spec.Reason)
}

// keyed is one limit and one key on the command line.
type keyed struct {
	Limit string `arg:"" help:"Name of the limit."`
	Key   string `arg:"" help:"The key, 1 to 1024 bytes."`
	inline
}

func (k keyed) item(cost *int64) (*penstockv1.Item, error) {
	item := &penstockv1.Item{Limit: k.Limit, Key: []byte(k.Key), Cost: cost}
	if k.given() {
		_, wire, err := k.limit(k.Limit)
		if err != nil {
			return nil, err
		}
		item.Limit, item.Inline = "", wire
	}
	return item, nil
}

type checkVerb struct {
	Limit string `arg:"" optional:"" help:"Name of the limit."`
	Key   string `arg:"" optional:"" help:"The key, 1 to 1024 bytes."`
	inline
	attributes
	Cost int64  `default:"1" help:"Units to charge; 0 reports the state, a negative number gives back."`
	Plan string `help:"Plan of the key, of a limit that has plans."`
	remote
	output
}

func (v *checkVerb) Run(sh shell) error {
	k := keyed{v.Limit, v.Key, v.inline}
	switch {
	case len(v.Attribute) > 0 && (v.Limit != "" || k.given()):
		return errors.New("--attribute: the rules say which limits and keys attributes mean; " +
			"leave limit and key out")
	case len(v.Attribute) > 0:
		return v.byRules(sh)
	case v.Key == "":
		return errors.New("key: is empty; give a limit and a key, or --attribute NAME=VALUE for " +
			"what the rules make of it")
	}
	d, err := k.decide(&v.Cost, v.remote, func(q remoteCall) ([]*penstockv1.Decision, error) {
		for _, it := range q.items {
			it.Plan = v.Plan
		}
		return checkItems(q.ctx, q.client, q.items)
	})
	if err != nil {
		return err
	}
	if err := d.print(sh.out, v.output); err != nil {
		return err
	}
	if !d.Allowed {
		return exitDenied
	}
	return nil
}

type peekVerb struct {
	keyed
	Cost int64 `default:"0" help:"Say whether a check of so many units would be allowed now."`
	remote
	output
}

func (v *peekVerb) Run(sh shell) error {
	d, err := v.decide(&v.Cost, v.remote, func(q remoteCall) ([]*penstockv1.Decision, error) {
		out, err := limitsOf(q.client).Peek(q.ctx, &penstockv1.PeekRequest{Items: q.items})
		return out.GetDecisions(), err
	})
	if err != nil {
		return err
	}
	if v.Cost == 0 { // everybody is allowed to take nothing
		d.done = "nothing charged"
	}
	return d.print(sh.out, v.output)
}

// A remoteCall is the one item of the command line, and the node that is asked about it.
type remoteCall struct {
	ctx    context.Context
	client *client.Client
	items  []*penstockv1.Item
}

// decide asks about the one item of the command line.
func (k keyed) decide(cost *int64, r remote,
	ask func(remoteCall) ([]*penstockv1.Decision, error),
) (decision, error) {
	item, err := k.item(cost)
	if err != nil {
		return decision{}, err
	}
	var d decision
	err = r.ask(func(ctx context.Context, c *client.Client) error {
		answers, err := ask(remoteCall{ctx, c, []*penstockv1.Item{item}})
		if err != nil {
			return err
		}
		if len(answers) != 1 {
			return fmt.Errorf("the node answered %d decisions to one item; is it of this "+
				"version?", len(answers))
		}
		d = decisionOf(k.Key, answers[0])
		return nil
	})
	if cost != nil {
		d.cost = *cost
	}
	return d, aboutOne(err)
}
