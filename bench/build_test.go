package main

import "testing"

// TestSymbol: code and constants count for their module, and nothing else does.
func TestSymbol(t *testing.T) {
	type part struct {
		module string
		size   int
	}
	for line, want := range map[string]part{
		"  51d960    120 T penstock/limiter.(*Table).Take": {"penstock", 120},
		"  51d960      7 t main.run":                       {"penstock", 7},
		"  51d960     64 R net/http.statusText":            {"standard library", 64},
		"  51d960     32 T sort.Sort[github.com/a/b.c]":    {"standard library", 32},
		"  51d960     10 T google.golang.org/grpc/internal.(*x).y": {
			"google.golang.org/grpc", 10,
		},
		"  51d960     11 T github.com/miekg/dns.(*Msg).Pack": {"github.com/miekg/dns", 11},
		"  51d960     12 T github.com/prometheus/client_golang/prometheus.New": {
			"github.com/prometheus/client_golang", 12,
		},
		"  51d960    500 D net/http.table": {},
		"  51d960    500 R go:string.*":    {},
		"  51d960    500 R type:.eq.x":     {},
		"         U getaddrinfo":           {},
	} {
		module, size := symbol(line)
		if got := (part{module, size}); got != want {
			t.Errorf("%q: %+v", line, got)
		}
	}
}
