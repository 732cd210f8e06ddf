package main

import (
	"bytes"
	"fmt"
	"testing"

	"penstock/limiter/policy"
	"penstock/sim"
)

const replayedLimits = `
limits: [{name: api, algorithm: gcra, limit: 100, per: 1m, burst: 20}]
rules: [{match: {path: "/api/*"}, apply: [{limit: api, key: "{ip}"}]}]
`

// BenchmarkReplay reads lines of a web server's log and decides on them: lines/s are the measure.
func BenchmarkReplay(b *testing.B) {
	const lines = 200_000
	var log bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&log, "10.0.%d.%d - - [10/Oct/2026:13:%02d:%02d +0000] \"GET "+
			"/api/items?page=%d "+
			"HTTP/1.1\" 200 5120 \"https://example.org/\" \"Mozilla/5.0 (X11; Linux x86_64)\"\n",
			i%7, i%251, i*60/lines, i*3600/lines%60, i%50)
	}
	set, err := policy.Parse("bench.yaml", []byte(replayedLimits))
	if err != nil {
		b.Fatal(err)
	}
	measure := func(replay func(from *openedLog) error) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				if err := replay(&openedLog{Reader: bytes.NewReader(log.Bytes())}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		}
	}
	b.Run("limit", measure(func(from *openedLog) error {
		log := sim.Log{Format: "common", Key: "{ip}"}
		_, err := replayLog(log, decideAlone(set.Limits["api"], 64<<20), from, &timeline{})
		return err
	}))
	b.Run("rules", measure(func(from *openedLog) error {
		r, err := newRulesReplay(set, 64<<20)
		if err != nil {
			return err
		}
		_, _, err = sim.Log{Format: "common"}.ReadAttributes("log", from, set.Rules.Attributes(),
			nil, r.see)
		return err
	}))
}
