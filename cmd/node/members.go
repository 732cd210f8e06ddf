package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/admin"
	"penstock/rpc/client"
)

type membersVerb struct {
	remote
	output
}

// memberList is the answer to membersVerb, as /v1/members writes it.
type memberList struct {
	Members []admin.MemberJSON `json:"members"`
	Ring    string             `json:"ring"`

	Disagreeing []string `json:"limits_disagreeing"` // with the node that has answered
}

func (v *membersVerb) Run(sh shell) error {
	list := memberList{Members: []admin.MemberJSON{}, Disagreeing: []string{}}
	err := v.ask(func(ctx context.Context, c *client.Client) error {
		answer, err := adminOf(c).Members(ctx, &penstockv1.MembersRequest{})
		if err != nil {
			return err
		}
		list.Ring, list.Disagreeing = answer.Ring, append(
			list.Disagreeing,
			answer.LimitsDisagreeing...)
		for _, m := range answer.Members {
			list.Members = append(list.Members, admin.MemberJSON{
				Name: m.Name, State: m.State, Role: m.Role,
				Peer: m.PeerAddress, GRPC: m.GrpcAddress, HTTP: m.HttpAddress,
				Boot: fmt.Sprintf("%016x", m.Boot), Self: m.Self,
				Limits: m.Limits, Version: m.Version, Zone: m.Zone, FailedAgo: m.FailedAgoMs,
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return v.print(sh.out, list, list.write)
}

// rows are the table. What all members have alike has no column: alike says it, so that the table
// of most clusters is as wide as a terminal.
func (l memberList) rows() (rows [][]string, alike string) {
	rows = [][]string{{"NAME", "STATE", "ROLE", "GRPC", "HTTP", "PEER"}}
	for _, m := range l.Members {
		name := m.Name
		if m.Self {
			name += "*"
		}
		rows = append(rows, []string{name, m.State, m.Role, m.GRPC, m.HTTP, m.Peer})
	}
	for _, c := range []struct {
		name string
		of   func(admin.MemberJSON) string
	}{
		{"LIMITS", func(m admin.MemberJSON) string { return m.Limits }},
		{"VERSION", func(m admin.MemberJSON) string { return m.Version }},
		{"ZONE", func(m admin.MemberJSON) string { return m.Zone }},
	} {
		column := []string{c.name}
		for _, m := range l.Members {
			column = append(column, c.of(m))
		}
		if values := slices.Compact(slices.Clone(column[1:])); len(values) > 1 {
			for i := range rows {
				rows[i] = append(rows[i], column[i])
			}
		} else if len(values) == 1 && values[0] != "" {
			alike += ", " + strings.ToLower(c.name) + " " + values[0]
		}
	}
	if alike != "" {
		alike = "All have " + alike[2:] + ".\n"
	}
	return rows, alike
}

func (l memberList) write(w io.Writer) error {
	rows, alike := l.rows()
	colourOf := func(row, column int) string {
		if row == 0 || rows[0][column] != "STATE" {
			return ""
		}
		return stateColour(rows[row][column])
	}
	if err := colouredColumns(w, rows, colourOf); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s%s%s", l.failed(), alike,
		"* has answered. Ring "+l.Ring+": nodes with the same agree on every owner.\n")
	if err == nil && len(l.Disagreeing) > 0 {
		_, err = fmt.Fprintf(
			w,
			"DIFFERENT LIMITS: the files of %s say something else than those of the node "+
				"that has answered.\nGive all nodes the same files; until then the owner of a "+
				"key decides by its own.\n",
			strings.Join(l.Disagreeing, ", "),
		)
	}
	return err
}

// failed has a line for each member that has failed.
func (l memberList) failed() (lines string) {
	for _, m := range l.Members {
		if m.FailedAgo == nil {
			continue
		}
		ago := (time.Duration(*m.FailedAgo) * time.Millisecond).Round(time.Second)
		lines += fmt.Sprintf(
			"%s failed %v ago, without a goodbye. It is listed for %v, or until it is back.\n",
			m.Name, ago, failedFor)
	}
	return lines
}

type ringVerb struct {
	Key string `arg:"" help:"The key, 1 to 1024 bytes."`
	remote
	output
}

func (v *ringVerb) Run(sh shell) error {
	place := struct {
		Key       string `json:"key"`
		Partition int32  `json:"partition"`
		Owner     string `json:"owner"`
		Heir      string `json:"heir"`
		Ring      string `json:"ring"`
	}{Key: v.Key}
	err := v.ask(func(ctx context.Context, c *client.Client) error {
		answer, err := adminOf(c).Ring(ctx, &penstockv1.RingRequest{Key: []byte(v.Key)})
		if err == nil {
			place.Partition, place.Owner, place.Heir, place.Ring = answer.Partition, answer.Owner,
				answer.Heir, answer.Ring
		}
		return err
	})
	if err != nil {
		return err
	}
	return v.print(sh.out, place, func(w io.Writer) error {
		return columns(w, [][]string{
			{"key", place.Key},
			{"owner", place.Owner},
			{"heir", cmp.Or(place.Heir, "nobody: there is no other member")},
			{"partition", fmt.Sprint(place.Partition)},
			{"ring", place.Ring},
		})
	})
}
