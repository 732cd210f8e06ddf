package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"penstock/limiter/policy"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// expecting is the version that a change of a limit replaces.
type expecting struct {
	IfVersion string `placeholder:"VERSION" help:"Only if the limit is at this version (as in 12@node-1), or none is put (none). Default: in any case."`
}

// putAnswer says where a change is in force.
type putAnswer struct {
	Limit   string   `json:"limit"`
	Node    string   `json:"node"`
	Version string   `json:"version"`
	Reached int      `json:"reached"` // other nodes
	Missing []string `json:"missing"` // nodes that have not answered
}

// changeAnswer is what the answers to all changes have.
type changeAnswer interface {
	GetNode() string
	GetVersion() string
	GetReached() int32
	GetMissing() []string
}

func putAnswerOf(limit string, a changeAnswer) putAnswer {
	return putAnswer{
		limit,
		a.GetNode(),
		a.GetVersion(),
		int(a.GetReached()),
		append([]string{}, a.GetMissing()...),
	}
}

func (a putAnswer) write(w io.Writer, done string) error {
	late := ""
	if len(a.Missing) > 0 {
		late = "; these have not answered, and get it later: " + strings.Join(a.Missing, ", ")
	}
	_, err := fmt.Fprintf(w, "%s: %s at %s and %d other nodes, version %s%s\n",
		shown(a.Limit), done, a.Node, a.Reached, a.Version, late)
	return err
}

// change asks for one change of a limit, and says where it is in force.
func (e expecting) change(
	sh shell, r remote, o output, limit, done string,
	ask func(context.Context, penstockv1.AdminClient, string) (changeAnswer, error),
) error {
	var a putAnswer
	err := r.ask(func(ctx context.Context, c *client.Client) error {
		out, err := ask(ctx, adminOf(c), e.IfVersion)
		if err == nil {
			a = putAnswerOf(limit, out)
		}
		return err
	})
	if err != nil {
		return err
	}
	return o.print(sh.out, a, func(w io.Writer) error { return a.write(w, done) })
}

type limitsPutVerb struct {
	File string `arg:"" type:"path" placeholder:"FILE" help:"File of limits, as for serve --limits; - is the standard input."`
	expecting
	remote
	output
}

func (v *limitsPutVerb) Run(sh shell) error {
	set, err := readLimitsFile(v.File)
	if err != nil {
		return err
	}
	names := policy.ParentsFirst(set.Limits)
	switch {
	case set.Rules.Len() > 0:
		return fmt.Errorf("%s: has rules, which only files of nodes have; leave them out", v.File)
	case len(names) == 0:
		return fmt.Errorf("%s: has no limits to put", v.File)
	case v.IfVersion != "" && len(names) > 1:
		return fmt.Errorf("--if-version: is that of one limit, and %s has %d", v.File, len(names))
	}
	answers := []putAnswer{}
	for _, name := range names {
		err := v.ask(func(ctx context.Context, c *client.Client) error {
			out, err := adminOf(c).PutLimit(ctx, &penstockv1.PutLimitRequest{
				Definition: policy.Format(set.Limits[name]), Version: v.IfVersion,
			})
			if err == nil {
				answers = append(answers, putAnswerOf(name, out))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w (%d of %d limits are put)", shown(name), err, len(answers),
				len(names))
		}
	}
	return v.print(sh.out, answers, func(w io.Writer) error {
		for _, a := range answers {
			if err := a.write(w, "put"); err != nil {
				return err
			}
		}
		return nil
	})
}

func readLimitsFile(file string) (*policy.Set, error) {
	if file != "-" {
		return policy.LoadParts(file)
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, policy.MaxFile+1))
	if err != nil {
		return nil, err
	}
	return policy.ParseParts("-", text)
}

type limitsDeleteVerb struct {
	Limit string `arg:"" help:"Name of the limit."`
	expecting
	remote
	output
}

func (v *limitsDeleteVerb) Run(sh shell) error {
	return v.change(sh, v.remote, v.output, v.Limit, "deleted",
		func(ctx context.Context, c penstockv1.AdminClient, version string) (changeAnswer, error) {
			return c.DeleteLimit(ctx,
				&penstockv1.DeleteLimitRequest{Name: v.Limit, Version: version})
		})
}

type limitsRollbackVerb struct {
	Limit string `arg:"" help:"Name of the limit."`
	To    string `arg:"" help:"Version that is to be in force again, as limits history lists it."`
	expecting
	remote
	output
}

func (v *limitsRollbackVerb) Run(sh shell) error {
	return v.change(sh, v.remote, v.output, v.Limit, "as with "+v.To,
		func(ctx context.Context, c penstockv1.AdminClient, version string) (changeAnswer, error) {
			return c.RollbackLimit(ctx, &penstockv1.RollbackLimitRequest{
				Name: v.Limit, To: v.To, Version: version,
			})
		})
}

type limitsPromoteVerb struct {
	Limit string `arg:"" help:"Name of the limit."`
	File  string `       help:"File of limits that has it: it is rewritten, and nodes that watch it take it over. Without it, what is promoted is put at all nodes, over their files." type:"path" placeholder:"FILE"`
	expecting
	remote
	output
}

func (v *limitsPromoteVerb) Run(sh shell) error {
	if v.File != "" {
		if err := promoteInFile(v.File, v.Limit); err != nil {
			return err
		}
		_, err := fmt.Fprintf(sh.out, "%s: the candidate of %s is the limit now\n", v.File, v.Limit)
		return err
	}
	return v.change(sh, v.remote, v.output, v.Limit, "promoted",
		func(ctx context.Context, c penstockv1.AdminClient, version string) (changeAnswer, error) {
			return c.PromoteLimit(ctx,
				&penstockv1.PromoteLimitRequest{Name: v.Limit, Version: version})
		})
}

type limitsHistoryVerb struct {
	Limit string `arg:"" optional:"" help:"Only the changes of this limit."`
	remote
	output
}

// historyRow is one change as JSON shows it.
type historyRow struct {
	Limit      string `json:"limit"`
	Version    string `json:"version"`
	Base       string `json:"base"`
	By         string `json:"by"`
	AtMs       int64  `json:"at_ms"`
	Definition string `json:"definition"` // empty: deleted
}

func (v *limitsHistoryVerb) Run(sh shell) error {
	rows := []historyRow{}
	err := v.ask(func(ctx context.Context, c *client.Client) error {
		out, err := adminOf(c).LimitHistory(ctx, &penstockv1.LimitHistoryRequest{Name: v.Limit})
		for _, e := range out.GetEntries() {
			rows = append(rows,
				historyRow{e.Name, e.Version, e.Base, e.By, e.AtMs, string(e.Definition)})
		}
		return err
	})
	if err != nil {
		return err
	}
	return v.print(sh.out, rows, func(w io.Writer) error {
		if len(rows) == 0 {
			what := "No limit was put."
			if v.Limit != "" {
				what = fmt.Sprintf("No limit named %q was put.", v.Limit)
			}
			_, err := fmt.Fprintln(w, what)
			return err
		}
		table := [][]string{{"WHEN", "LIMIT", "VERSION", "REPLACED", "BY", "LIMIT NOW"}}
		for _, r := range rows {
			now := cmp.Or(r.Definition, "deleted")
			when := time.UnixMilli(r.AtMs).UTC().Format("2006-01-02 15:04:05Z")
			table = append(table,
				[]string{when, shown(r.Limit), r.Version, r.Base, shown(r.By), shown(now)})
		}
		return columns(w, table)
	})
}
