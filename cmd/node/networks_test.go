package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Promise: a network is one in CIDR notation or an address, and what is neither is named.
func TestNetworks(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8":               "[10.0.0.0/8]",
		"10.0.0.0/8, fd00::/8":     "[10.0.0.0/8 fd00::/8]",
		"192.0.2.7":                "[192.0.2.7/32]",
		"::1,127.0.0.0/8":          "[::1/128 127.0.0.0/8]",
		"10.0.0.0/8;::1":           "[10.0.0.0/8 ::1/128]",
		"":                         `"" is not a network`,
		"10.0.0.0/8,":              `"" is not a network`,
		"10.0.0.0/33":              `"10.0.0.0/33" is not a network: give an address`,
		"localhost":                `"localhost" is not a network`,
		"10.0.0.0/8,10.0.0,::1/64": `"10.0.0" is not a network`,
		"fe80::1%eth0":             `"fe80::1%eth0" is not a network`,
	} {
		var flags struct{ Allow networks }
		parser, err := kong.New(&flags)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		args := []string{}
		for part := range strings.SplitSeq(text, ";") {
			args = append(args, "--allow", part)
		}
		if _, err := parser.Parse(args); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint([]any{flags.Allow}...)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s; want %s", text, got, want)
		}
	}
}
