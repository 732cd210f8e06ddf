// Command penstock is a node of the cluster and its tools. Follow serve:
//
//  1. kong turns flags, PENSTOCK_… variables and a --config file into a config (settings.go). The
//     config is checked before anything is opened.
//  2. start (node.go) opens the sockets, then makes the node and its ports (package rpc), the doors
//     for clients and peers, the watcher of the limits file, and gossip (node_join.go). In this
//     order a node that can be reached answers.
//  3. gossip reaches a seed, the node's state goes from joining to active, every View it sees is
//     handed to Node.SetView, and /readyz turns green.
//  4. A SIGTERM runs the same way back: not ready, leaving, a second of grace, gone (stop.go).
//
// demo and bench --self start three such nodes in one process; the other verbs are clients of a
// running node, or need none at all.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	_ "time/tzdata" // limits per day or month are in time zones, and an empty image has none

	"github.com/alecthomas/kong"
)

func main() {
	os.Exit(run(os.Args[1:], shell{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// shell is where a verb reads and writes.
type shell struct {
	in  io.Reader // keys, of a verb that has a screen; nil: none
	out io.Writer // what was asked for: answers, tables, JSON
	err io.Writer // everything about it: logs, progress, errors
}

// verbs is the grammar of the command line.
type verbs struct {
	Serve       serveVerb       `cmd:"" help:"Run a node. Alone and without flags: a working limiter on loopback."`
	Demo        demoVerb        `cmd:"" help:"Run three nodes in this process, and show how to use them."`
	Check       checkVerb       `cmd:"" help:"Charge a key. Exits 0 if allowed, 2 if denied, 1 on error."`
	Peek        peekVerb        `cmd:"" help:"Show the state of a key, and charge nothing."`
	Reset       resetVerb       `cmd:"" help:"Forget what a key has used."`
	Credit      creditVerb      `cmd:"" help:"Give units back to a key, and record it in the audit log."`
	Members     membersVerb     `cmd:"" help:"List the nodes that a node knows."`
	Ring        ringVerb        `cmd:"" help:"Show which node owns a key."`
	Top         topVerb         `cmd:"" help:"List the keys that have used most, over all nodes."`
	Limits      limitsVerb      `cmd:"" help:"List and change the limits of the whole cluster, and try candidates."`
	Policy      policyVerb      `cmd:"" help:"Check, explain, compare and try files of limits, without a node."`
	Bench       benchVerb       `cmd:"" help:"Send load to a cluster, measure its answers, and check what it admits."`
	Sim         simVerb         `cmd:"" help:"Simulate clusters: sim --seed 7 is one of them, and prints the same bytes every time."`
	Recover     recoverVerb     `cmd:"" help:"Let a node go on after a majority of its voters is gone for good."`
	Healthcheck healthcheckVerb `cmd:"" help:"Ask a node whether it is ready. Exits 0 if it is, else 1."`
	offlineVerbs

	ShowVersion kong.VersionFlag `name:"version" env:"-" help:"Print the version."`
}

// offlineVerbs ask no node.
type offlineVerbs struct {
	Keygen     keygenVerb     `cmd:"" help:"Make a random key for the gossip, or a token for a client."`
	Certs      certsVerb      `cmd:"" help:"Make the certificates of nodes and clients."`
	Import     importVerb     `cmd:"" help:"Write limits and rules that do what another program does."`
	Completion completionVerb `cmd:"" help:"Make a shell complete verbs, flags and values."`
	Man        manVerb        `cmd:"" help:"Write the pages of the manual."`
	Version    versionVerb    `cmd:"" help:"Print the version."`
}

// exitCode ends the process with a code and no further words.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// exitDenied is check's answer to a denial. It is not an error: 1 is.
const exitDenied = exitCode(2)

// run is the process as a function: it returns the exit code.
func run(args []string, sh shell) (code int) {
	// kong ends --help by calling exit in the middle of parsing.
	type exited int
	defer func() {
		switch e := recover().(type) {
		case nil:
		case exited:
			code = int(e)
		default:
			panic(e)
		}
	}()
	forgetEmptyVariables()
	var v verbs
	parser := newParser(&v, sh, func(c int) { panic(exited(c)) })
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(joinNegatives(args))
	if err != nil {
		hint := helpHint(err)
		if file := new(configError); errors.As(err, &file) {
			err = file
		}
		fmt.Fprintf(sh.err, "penstock: %v\n%s\n", err, hint)
		return 1
	}
	err = ctx.Run(sh)
	var silent exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &silent):
		return int(silent)
	}
	fmt.Fprintf(sh.err, "%s: %v\n", ctx.Selected().FullPath(), err)
	return 1
}

// forgetEmptyVariables takes what is set and empty for what is not set: a compose file sets each
// variable that it passes on.
func forgetEmptyVariables() {
	for _, v := range os.Environ() {
		if name, empty := strings.CutSuffix(v, "="); empty && strings.HasPrefix(name, "PENSTOCK_") {
			os.Unsetenv(name)
		}
	}
}

// newParser makes of v's fields a grammar that writes its help to sh, and ends with exit.
func newParser(v *verbs, sh shell, exit func(code int)) *kong.Kong {
	parser, err := kong.New(v,
		kong.Name("penstock"),
		kong.Description("A peer-to-peer rate limiter: "+
			"every key has one owner, which decides from memory."),
		kong.DefaultEnvars("PENSTOCK"),
		kong.Resolvers(&configFile{}),
		kong.NamedMapper("path", kong.MapperFunc(readPath)),
		kong.Vars{"hostname": hostname(), "version": versionLine()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.ValueFormatter(helpWithoutEnv),
		kong.ExplicitGroups(groups),
		kong.Writers(sh.out, sh.err),
		kong.Exit(exit),
	)
	if err != nil {
		panic(err) // the grammar itself is wrong
	}
	return parser
}

// joinNegatives makes --cost=-1 of --cost -1, which kong would take for a flag of the name 1. Spans
// and sizes have units, and the flag that they are for says what is wrong with them.
func joinNegatives(args []string) (joined []string) {
	for i, a := range args {
		if a == "--" {
			return append(joined, args[i:]...)
		}
		if last := len(joined) - 1; last >= 0 && negative.MatchString(a) &&
			bareFlag.MatchString(joined[last]) {
			joined[last] += "=" + a
			continue
		}
		joined = append(joined, a)
	}
	return joined
}

var (
	negative = regexp.MustCompile(`^-[0-9][0-9.a-zA-Z]*$`)
	bareFlag = regexp.MustCompile(`^--[a-z-]+$`)
)

// helpHint names the page of help that is nearest to a mistake on the command line.
func helpHint(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context.Selected() != nil {
		return fmt.Sprintf("Run \"%s --help\" for its flags.", parse.Context.Selected().FullPath())
	}
	return `Run "penstock --help" for the verbs.`
}

// helpWithoutEnv keeps the variable's name out of every line of help: it follows from the flag's,
// and serve's help says how.
func helpWithoutEnv(v *kong.Value) string { return v.Help }

func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "penstock"
	}
	return name
}
