package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// topVerb asks all members of a cluster, each of which lists the keys that it decides for. On a
// terminal it does so again and again.
type topVerb struct {
	Count  int    `short:"n" default:"20" help:"How many keys, 1 to 1000."`
	Once   bool   `help:"Print once, on a terminal too."`
	Limit  string `placeholder:"NAME" help:"Only keys of this limit."`
	Holds  bool   `help:"List open holds instead: reservations, permits and leases, with the earliest deadline first."`
	Key    string `help:"With --holds: only those on this key."`
	Holder string `help:"With --holds: only those of this holder."`
	remote
	output
}

// topRow is one key as JSON shows it.
type topRow struct {
	Key        string `json:"key"`
	Name       string `json:"name"` // of the limit
	Limit      int64  `json:"limit"`
	Used       int64  `json:"used"`
	ResetAfter int64  `json:"reset_after_ms"`
	Owner      string `json:"owner"`
}

// topList is the answer of all members together.
type topList struct {
	Keys    []topRow `json:"keys"`
	Seen    int64    `json:"seen"`
	Partial bool     `json:"partial"` // somebody had no time to look at all keys
	Missing []string `json:"missing"` // members that did not answer
}

func (v *topVerb) Run(sh shell) error {
	if v.Count < 1 || v.Count > 1000 {
		return fmt.Errorf("--count %d: give 1 to 1000", v.Count)
	}
	live := !v.Once && v.Output == "text" && sh.keyboard() != nil
	switch {
	case v.Holds && live:
		return v.liveHolds(sh)
	case v.Holds:
		return v.holds(sh)
	case v.Key != "" || v.Holder != "":
		return errors.New("--key and --holder are for --holds")
	case live:
		return v.live(sh)
	}
	return v.once(sh)
}

// once prints the keys once.
func (v *topVerb) once(sh shell) error {
	list := topList{Keys: []topRow{}}
	missing, err := v.askMembers(func(ctx context.Context, c *client.Client) (func(), error) {
		out, err := adminOf(c).Top(ctx,
			&penstockv1.TopRequest{Count: int32(v.Count), Limit: v.Limit})
		return func() { list.add(out) }, err
	})
	if err != nil {
		return err
	}
	list.Missing = missing
	list.sort(v.Count)
	if err := v.print(sh.out, list, list.write); err != nil {
		return err
	}
	return unasked(missing)
}

// unasked names the members that did not answer.
func unasked(missing []string) error {
	if len(missing) > 0 {
		return fmt.Errorf("without %v: not reached by the gRPC address that it has told the others",
			missing)
	}
	return nil
}

// questionOf asks one node, and returns a function that takes the answer in, one at a time.
type questionOf func(context.Context, *client.Client) (takeIn func(), err error)

// askMembers asks every member of the cluster, all at once, with what the command line has shown to
// the first. missing are those that do not answer, sorted.
func (r remote) askMembers(question questionOf) (missing []string, err error) {
	return r.askEach(holdersOf, question)
}

// askNodes is askMembers with agents too.
func (r remote) askNodes(question questionOf) (missing []string, err error) {
	return r.askEach(func(members []*penstockv1.Member) []*penstockv1.Member {
		return slices.DeleteFunc(slices.Clone(members), func(m *penstockv1.Member) bool {
			return m.State == "failed"
		})
	}, question)
}

// askEach asks those that choose picks, once.
func (r remote) askEach(
	choose func([]*penstockv1.Member) []*penstockv1.Member, question questionOf,
) (missing []string, err error) {
	l := newLookout(r)
	defer l.close()
	silent, _, err := l.each(context.Background(), choose,
		func(ctx context.Context, c *client.Client, _ *penstockv1.Member) (func(), error) {
			return question(ctx, c)
		})
	missing = []string{}
	for _, m := range silent {
		missing = append(missing, m.name)
	}
	return missing, err
}

func (l *topList) add(out *penstockv1.TopResponse) {
	l.Seen += out.Seen
	l.Partial = l.Partial || out.Partial
	for _, k := range out.Keys {
		l.Keys = append(l.Keys,
			topRow{string(k.Key), k.LimitName, k.Limit, k.Used, k.ResetAfterMs, out.Node})
	}
}

// sort puts the keys that have used most first, and cuts the rest off.
func (l *topList) sort(count int) {
	slices.SortFunc(l.Keys, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Key, b.Key))
	})
	l.Keys = l.Keys[:min(count, len(l.Keys))]
}

// write is a table of 80 columns: names and keys that are longer are cut.
func (l topList) write(w io.Writer) error {
	rows := [][]string{{"USED", "OF", "FULL IN", "LIMIT", "OWNER", "KEY"}}
	for _, k := range l.Keys {
		rows = append(
			rows,
			[]string{
				thousands(k.Used),
				thousands(k.Limit),
				wait(k.ResetAfter),
				cut(k.Name, 12),
				cut(k.Owner, 10),
				cut(shown(k.Key), 22),
			},
		)
	}
	if err := columns(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s keys looked at\n", thousands(l.Seen))
	if l.Partial && err == nil {
		_, err = fmt.Fprintln(w, "there are more: give it more time with --timeout")
	}
	return err
}

// cut shortens a text to n characters.
func cut(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}
