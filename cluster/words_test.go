package cluster

import (
	"testing"

	"penstock/cluster/ownership"
)

// Promise: a node speaks for itself alone. The process of a line has the boot 9 and the id n9; 9
// with other high bits is a later life of the same process.
func TestForgedWords(t *testing.T) {
	const later = ownership.Boot(9 | 5<<48)
	config := &ownership.Configuration{}
	self := ownership.Member{ID: "n9", Boot: 9}
	words := func(m ownership.Message) Words {
		return Words{From: 9, ID: "n9", Process: 9, Said: []ownership.Message{m}}
	}
	for name, row := range map[string]struct {
		words         Words
		member, agent bool // may say so
	}{
		"of itself":     {words(ownership.Renew{}), true, false},
		"of a life":     {Words{From: later, ID: "n9", Process: 9}, true, true},
		"another boot":  {Words{From: 8, ID: "n9", Process: 9}, false, false},
		"other process": {Words{From: 8, ID: "n9", Process: 8}, false, false},
		"another id":    {Words{From: 9, ID: "n8", Process: 9}, false, false},
		"hello":         {words(ownership.Hello{Member: self}), true, true},
		"founded":       {words(ownership.Hello{Member: self, Config: config}), true, false},
		"deciding":      {words(ownership.Hello{Member: self, Deciding: true}), true, false},
		"other's hello": {
			words(ownership.Hello{Member: ownership.Member{ID: "n8", Boot: 9}}),
			false, false,
		},
		"join": {words(ownership.Join{Member: self, Former: later}), true, false},
		"join as other": {
			words(ownership.Join{Member: ownership.Member{ID: "n9", Boot: 8}}),
			false, false,
		},
		"ends another": {words(ownership.Join{Member: self, Former: 8}), false, false},
		"asks":         {words(ownership.Behind{}), true, true},
	} {
		for agent, may := range map[bool]bool{false: row.member, true: row.agent} {
			if reason := row.words.Forged("n9", 9, agent); (reason == "") != may {
				t.Errorf("%s, agent %t: %q", name, agent, reason)
			}
		}
	}
}
