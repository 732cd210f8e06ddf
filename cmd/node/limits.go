package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"penstock/limiter/policy"
	penstockv1 "penstock/proto/penstock/v1"
)

// limitsVerb is about the limits that nodes have in force.
type limitsVerb struct {
	Candidate limitsCandidateVerb `cmd:"" help:"Show what the candidates of limits would have refused, over all nodes."`
	Promote   limitsPromoteVerb   `cmd:"" help:"Put the candidate of a limit in the limit's place: in a file, or at all nodes."`
	List      limitsListVerb      `cmd:"" help:"List the limits in force, where they come from, and whether nodes differ."`
	Put       limitsPutVerb       `cmd:"" help:"Put limits at all nodes, over those of files."`
	Delete    limitsDeleteVerb    `cmd:"" help:"Take a limit away that was put. That of a file is in force again."`
	History   limitsHistoryVerb   `cmd:"" help:"List the last changes of limits that were put: when, at which node and by which client."`
	Rollback  limitsRollbackVerb  `cmd:"" help:"Put an earlier version of a limit again."`
}

// ruleText is a limit in a few words.
func ruleText(l *penstockv1.InlineLimit) string {
	window := (time.Duration(l.PerMs) * time.Millisecond).String()
	for _, zero := range []string{"m0s", "h0m"} { // 10m0s, 1h0m0s
		if strings.HasSuffix(window, zero) {
			window = window[:len(window)-2]
		}
	}
	if l.Calendar != 0 {
		window = strings.ToLower(strings.TrimPrefix(l.Calendar.String(), "CALENDAR_"))
	}
	algorithm := strings.ToLower(strings.TrimPrefix(l.Algorithm.String(), "ALGORITHM_"))
	text := fmt.Sprintf("%s in %s, %s", thousands(l.Limit), window, algorithm)
	if l.Burst > 0 && l.Burst != l.Limit {
		text += fmt.Sprintf(", burst %s", thousands(l.Burst))
	}
	return text
}

// promoteInFile rewrites a file as a whole, so that a node that watches it never reads half of it.
func promoteInFile(file, limit string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("--file %s: is a directory; name the file that has the limit", file)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	after, err := policy.Promote(file, before, limit)
	if err != nil {
		return err
	}
	return replaceFile(file, string(after))
}
