package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// holdRow is one open hold as JSON shows it.
type holdRow struct {
	Name   string `json:"name"` // of the limit
	Key    string `json:"key"`
	Holder string `json:"holder"`
	Units  int64  `json:"units"`
	Left   int64  `json:"left_ms"`
	Owner  string `json:"owner"`
}

// holdList is the answer of all members together.
type holdList struct {
	Holds   []holdRow `json:"holds"`
	There   int64     `json:"there"`   // also those that are not listed
	Missing []string  `json:"missing"` // members that did not answer
}

// holds asks all members for their open holds and the holders.
func (v *topVerb) holds(sh shell) error {
	list := holdList{Holds: []holdRow{}}
	missing, err := v.askMembers(func(ctx context.Context, c *client.Client) (func(), error) {
		out, err := askHolds(ctx, c, v.whichHolds(v.Count))
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

// whichHolds asks for those that the command line means.
func (v *topVerb) whichHolds(count int) *penstockv1.HoldsRequest {
	return &penstockv1.HoldsRequest{
		Limit: v.Limit, Key: []byte(v.Key), Holder: v.Holder, Count: int32(count),
	}
}

func (l *holdList) add(out *penstockv1.HoldsResponse) {
	l.There += out.There
	for _, h := range out.Holds {
		l.Holds = append(l.Holds, holdRow{
			h.LimitName, string(h.Key), h.Holder, h.Units, h.LeftMs, out.Node,
		})
	}
}

// sort puts the earliest deadline first, and cuts the rest off.
func (l *holdList) sort(count int) {
	slices.SortFunc(l.Holds, func(a, b holdRow) int {
		return cmp.Or(cmp.Compare(a.Left, b.Left), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Key, b.Key), cmp.Compare(a.Holder, b.Holder))
	})
	l.Holds = l.Holds[:min(count, len(l.Holds))]
}

// write is a table of 80 columns: names and keys that are longer are cut.
func (l holdList) write(w io.Writer) error {
	if err := columns(w, holdTable(l.Holds)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s holds are open\n", thousands(l.There))
	return err
}

func holdTable(holds []holdRow) [][]string {
	rows := [][]string{{"UNITS", "RUNS OUT IN", "LIMIT", "OWNER", "KEY", "HOLDER"}}
	for _, h := range holds {
		rows = append(rows, []string{
			thousands(h.Units), wait(h.Left), cut(h.Name, 12),
			cut(h.Owner, 10), cut(shown(h.Key), 16), cut(shown(h.Holder), 16),
		})
	}
	return rows
}
