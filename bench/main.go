// Bench measures penstock beside what else there is, all in one run on loopback, and prints tables
// with ratios. It ends by itself.
//
//	go run .                   all rows
//	go run . -only redis,idle  some rows
//	go run . limiters          limiters that work within one process, at more points
//	go run . docs              shows the figures of the last run in ../docs/performance.md
//	go run . guard             whether the hot paths allocate more than they did
//
// README.md says what is compared.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"penstock/bench/guard"
	"penstock/bench/inprocess"
	"penstock/bench/servers"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, out, progress io.Writer) error {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch verb {
	case "limiters":
		return contestOfLimiters(args[1:], out, progress)
	case "docs":
		return docs(args[1:], out)
	case "guard":
		return guardFigures(args[1:], out)
	case servers.EmptyVerb:
		if len(args) != 2 {
			return fmt.Errorf("%s wants an address", servers.EmptyVerb)
		}
		l, err := net.Listen("tcp", args[1])
		if err != nil {
			return err
		}
		return servers.ServeEmpty(l)
	case servers.MemberVerb:
		return servers.Member(args[1:])
	case servers.AloneVerb:
		return servers.Alone(args[1:])
	case inprocess.Verb:
		return servers.InProcess(args[1:], out)
	case measureVerb:
		return measure(args[1:], out)
	case coresVerb:
		return measureCores(args[1:], out)
	}
	return everything(args, out, progress)
}

// guardFigures compares with the figures that are kept, or keeps those that it measures.
func guardFigures(args []string, out io.Writer) error {
	f := flag.NewFlagSet("guard", flag.ContinueOnError)
	f.SetOutput(out)
	record := f.Bool("record", false, "write the figures instead of comparing with them")
	if err := f.Parse(args); err != nil {
		return err
	}
	return guard.Check("..", filepath.Join("guard", "figures"), *record, out)
}
