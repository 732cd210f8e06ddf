package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"penstock/limiter/policy"
	"penstock/sim"
)

const replayedLimits = `
limits: [{name: api, algorithm: gcra, limit: 100, per: 1m, burst: 20}]
rules: [{match: {path: "/api/*"}, apply: [{limit: api, key: "{ip}"}]}]
`

// replayedLines is how many lines the logs of BenchmarkReplay have. They are many, so that what is
// done once for each log counts for little.
const replayedLines = 1_000_000

// replayedLog is a log of a format that policy replay reads.
func replayedLog(format string) []byte {
	var log bytes.Buffer
	dice := rand.New(rand.NewPCG(1, 2)) // a log that repeats itself is unpacked too soon
	for i := range replayedLines {
		ip, page, size := dice.IntN(7*251), dice.IntN(50), dice.IntN(20_000)
		minute, second := i*60/replayedLines, i*3600/replayedLines%60
		if format == "json" {
			fmt.Fprintf(&log, `{"time":"2026-10-10T13:%02d:%02d.%03dZ","ip":"10.0.%d.%d",`+
				`"method":"GET","path":"/api/items","query":"page=%d","status":200,"bytes":%d,`+
				`"agent":"Mozilla/5.0 (X11; Linux x86_64)"}`+"\n",
				minute, second, i*1000/(replayedLines/3600)%1000, ip%7, ip/7, page, size)
			continue
		}
		fmt.Fprintf(&log, "10.0.%d.%d - - [10/Oct/2026:13:%02d:%02d +0000] \"GET "+
			"/api/items?page=%d HTTP/1.1\" 200 %d \"https://example.org/\" \"Mozilla/5.0 "+
			"(X11; Linux x86_64)\"\n", ip%7, ip/7, minute, second, page, size)
	}
	return log.Bytes()
}

// BenchmarkReplay reads logs of files and decides on their lines: lines/s are the measure.
func BenchmarkReplay(b *testing.B) {
	set, err := policy.Parse("bench.yaml", []byte(replayedLimits))
	if err != nil {
		b.Fatal(err)
	}
	byLimit := func(log sim.Log, from *openedLog) error {
		_, err := replayLog(log, decideAlone(set.Limits["api"], 64<<20), from, &timeline{},
			nil)
		return err
	}
	byRules := func(log sim.Log, from *openedLog) error {
		r, err := newRulesReplay(set, 64<<20)
		if err != nil {
			return err
		}
		_, _, err = log.ReadAttributes("log", from, set.Rules.Attributes(), nil, r.see)
		return err
	}
	for _, format := range []string{"common", "json"} {
		log := replayedLog(format)
		var packed bytes.Buffer
		packer := gzip.NewWriter(&packed)
		packer.Write(log)
		packer.Close()
		for name, text := range map[string][]byte{"": log, ".gz": packed.Bytes()} {
			path := filepath.Join(b.TempDir(), "log"+name)
			if err := os.WriteFile(path, text, 0o600); err != nil {
				b.Fatal(err)
			}
			for by, replay := range map[string]func(sim.Log, *openedLog) error{
				"limit": byLimit, "rules": byRules,
			} {
				b.Run(format+name+"/"+by, func(b *testing.B) {
					for b.Loop() {
						from, err := openLog(path, shell{err: b.Output()})
						if err != nil {
							b.Fatal(err)
						}
						err = replay(sim.Log{Format: format, Key: "{ip}"}, from)
						if from.close(); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(replayedLines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
				})
			}
		}
	}
}
