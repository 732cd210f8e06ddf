package sim

import (
	"fmt"
	"io"
	"strings"
)

// KindSummary is what came of the worlds of one kind.
type KindSummary struct {
	Name   string         `json:"name"`
	Says   string         `json:"says"`
	From   uint64         `json:"from"` // its first seed
	Worlds int            `json:"worlds"`
	Failed map[string]int `json:"failed"` // worlds, by the promise that broke
	First  []uint64       `json:"first"`  // seeds of the first few that failed
}

// KindsSummary is what came of all kinds.
type KindsSummary struct {
	Kinds     []*KindSummary  `json:"kinds"`
	Loss      LossReport      `json:"loss"`
	Available AvailableReport `json:"available"`
}

// MostKindSeeds is how many seeds each kind has.
const MostKindSeeds = kindSeeds

// Kinds plays n worlds of each kind, and fewer of the long ones, in several worlds at a time. The
// first is the from-th of its kind, beginning with 0; there are MostKindSeeds. It demands every
// promise, also those that the protocol is known to break: so it counts, and OK is for a protocol
// that holds all.
func Kinds(from uint64, n, workers int) *KindsSummary {
	s := &KindsSummary{}
	var seeds []uint64
	var of []*KindSummary // by seed
	for i, k := range worldKinds {
		kind := &KindSummary{
			Name: k.name, Says: k.says, From: firstSeed(i) + from,
			Failed: make(map[string]int),
		}
		s.Kinds = append(s.Kinds, kind)
		for j := range (n + k.rare) / max(1, k.rare+1) {
			seeds, of = append(seeds, kind.From+uint64(j)), append(of, kind)
		}
	}
	workers = max(1, workers)
	reports := make([]chan *Report, workers)
	for k := range reports {
		reports[k] = make(chan *Report, 64)
		go func() {
			for i := k; i < len(seeds); i += workers {
				reports[k] <- Run(seeds[i])
			}
		}()
	}
	for i := range seeds {
		of[i].add(<-reports[i%workers], s)
	}
	return s
}

func (k *KindSummary) add(r *Report, s *KindsSummary) {
	k.Worlds++
	s.Loss.add(&r.Loss)
	s.Available.add(&r.Available)
	if r.OK() {
		return
	}
	k.Failed[r.Failure.Promise]++
	if len(k.First) < 3 {
		k.First = append(k.First, r.Seed)
	}
}

// OK reports whether every promise held in every world.
func (s *KindsSummary) OK() bool {
	for _, k := range s.Kinds {
		if len(k.Failed) > 0 {
			return false
		}
	}
	return true
}

// WriteText writes s for people: a line for each kind.
func (s *KindsSummary) WriteText(w io.Writer) error {
	var b strings.Builder
	failed, worlds := 0, 0
	fmt.Fprintf(&b, "%-16s%8s%8s  %s\n", "kind", "worlds", "failed", "by promise; the first seeds")
	for _, k := range s.Kinds {
		n, by := 0, ""
		for _, p := range promiseWords {
			if x := k.Failed[p[0]]; x > 0 {
				n += x
				by += fmt.Sprintf("%s %d, ", p[0], x)
			}
		}
		if by = strings.TrimSuffix(by, ", "); n > 0 {
			by += "; " + someOf(k.First)
		}
		fmt.Fprintf(&b, "%-16s%8d%8d  %s\n", k.Name, k.Worlds, n, by)
		failed, worlds = failed+n, worlds+k.Worlds
	}
	s.Loss.write(&b)
	s.Available.write(&b)
	if failed == 0 {
		fmt.Fprintf(&b, "ok: %d worlds of %d kinds held every promise\n", worlds, len(s.Kinds))
	} else {
		fmt.Fprintf(&b, "FAILED: %d of %d worlds of %d kinds broke a promise\n", failed, worlds,
			len(s.Kinds))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
