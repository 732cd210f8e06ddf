package penstock_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file keeps the shape of the house. The tables come first: each entry's value is the reason
// for it. Below them stand the tests, then how sources are read. A test that fails prints the place
// and the reason.

// arrows are all imports between packages of this module. "a -> b": a imports b, because …
// Tests may also import what their package may, and what stands in testArrows.
var arrows = map[string]string{
	"limiter/policy -> limiter":       "a file of limits becomes *limiter.Limit values",
	"limiter/policy -> limiter/rules": "… and its rules a *rules.Set",
	"limiter/policy -> textfile":      "a pipe in the place of a file is not waited for",
	"limiter/rules -> limiter":        "rules name limits, and match as overrides do",

	"cluster -> limiter":         "the owner of a key decides",
	"cluster -> limiter/rules":   "a node finds the limits of a request by its attributes",
	"cluster -> ring":            "the owner of a key is found",
	"cluster -> cluster/breaker": "a peer that does not answer is not waited for",
	"cluster -> cluster/charges": "what was charged to replicated limits is told in each tick",
	"cluster -> cluster/debts":   "what a node admits without the holder of a key is charged later",
	"cluster -> cluster/dedup":   "a take that is delivered twice is charged once",
	"cluster -> cluster/denial":  "a key that is denied again and again is not asked for each time",

	"cluster -> cluster/lease": "a hot key is decided from units that its holder has lent",

	"cluster -> cluster/ownership": "a node hears what members agree on",

	"cluster/breaker -> limiter":     "pauses end at instants",
	"cluster/charges -> limiter":     "a charge is one under a limit",
	"cluster/debts -> limiter":       "a debt is a take under a limit",
	"cluster/debts -> cluster/dedup": "a report has an id, so it is charged once",
	"cluster/dedup -> limiter":       "an answer is a decision, and instants are limiter's",
	"cluster/denial -> limiter":      "a denial is a decision of a limit",
	"cluster/lease -> limiter":       "a lease is limiter's arithmetic, for each key",
	"cluster/lease -> cluster/dedup": "a lease is a hold, whose name is an id",

	"cluster/gossip -> cluster": "membership becomes Views",
	"cluster/gossip -> ring":    "a node whose ring is built differently is refused",

	"rpc -> rpc/door": "certificates are adjusted as doors do",
	"rpc -> textfile": "a pipe in the place of a certificate is not waited for",

	"rpc/access -> textfile": "… or of the clients",

	"rpc/web -> cluster": "a page becomes a request of the node",
	"rpc/web -> limiter": "pages state limits, and show decisions and instants",
	"rpc/web -> limiter/rules": "forward-auth fills the templates of keys, and says what rules " +
		"ask for",
	"rpc/web -> ring":        "the status pages show who owns a key",
	"rpc/web -> proto":       "the admin listener has penstock.v1.Admin too",
	"rpc/web -> rpc/access":  "every door asks what its client may do",
	"rpc/web -> rpc/admin":   "pages for operators do what the calls of penstock.v1.Admin do",
	"rpc/web -> rpc/audit":   "a page shows what clients have changed",
	"rpc/web -> rpc/catalog": "a page puts limits at all nodes",
	"rpc/web -> rpc/door": "what all doors share: faults, rights, limits brought along, " +
		"metrics",
	"rpc/web -> rpc/fair":       "a client that asks for more than its share is refused",
	"rpc/web -> rpc/gubernator": "its pages stand beside the others",
	"rpc/web -> rpc/history":    "pages show what nodes remember",
	"rpc/web -> rpc/hold":       "pages reserve, settle and extend",
	"rpc/web -> rpc/notation":   "limits are JSON there",
	"rpc/web -> rpc/overview":   "the page of the whole cluster",
	"rpc/web -> rpc/page":       "all pages answer in JSON, and say problems alike",
	"rpc/web -> rpc/trace":      "checks are noted in spans",
	"rpc/web -> rpc/ui":         "the page of a node",

	"rpc/native -> cluster":     "a message becomes a request of the node",
	"rpc/native -> limiter":     "deadlines are instants",
	"rpc/native -> proto":       "the messages of penstock.v1",
	"rpc/native -> rpc/access":  "every door asks what its client may do",
	"rpc/native -> rpc/admin":   "penstock.v1.Admin is registered beside RateLimiter",
	"rpc/native -> rpc/audit":   "resets and settlements are recorded",
	"rpc/native -> rpc/catalog": "Admin puts limits at all nodes",
	"rpc/native -> rpc/clock":   "deadlines of calls are instants of the node's clock",
	"rpc/native -> rpc/door": "what all doors share: faults, rights, limits brought along, " +
		"metrics",
	"rpc/native -> rpc/fair":       "a client that asks for more than its share is refused",
	"rpc/native -> rpc/gubernator": "its service is registered beside the others",
	"rpc/native -> rpc/history":    "Admin says which keys are asked for most",
	"rpc/native -> rpc/hold":       "calls reserve, settle and extend",
	"rpc/native -> rpc/notation":   "limits and decisions are messages there",
	"rpc/native -> rpc/trace":      "checks are noted in spans",
	"rpc/native -> rpc/wire":       "messages with a thousand items are read and written by hand",

	"rpc/admin -> cluster":      "operators ask the node how it is",
	"rpc/admin -> limiter":      "… and what its limits and keys are",
	"rpc/admin -> proto":        "the messages of penstock.v1.Admin",
	"rpc/admin -> rpc/access":   "each method needs a right",
	"rpc/admin -> rpc/audit":    "what operators change is recorded",
	"rpc/admin -> rpc/catalog":  "limits are put at all nodes",
	"rpc/admin -> rpc/door":     "what all doors share",
	"rpc/admin -> rpc/history":  "which keys are asked for most, the recorder knows",
	"rpc/admin -> rpc/notation": "limits and decisions are messages there",

	"rpc/overview -> cluster":     "nodes are asked, and answer from their own state",
	"rpc/overview -> limiter":     "… about limits and keys",
	"rpc/overview -> rpc/admin":   "rows of the page are those of operators' calls",
	"rpc/overview -> rpc/history": "counts and events of each node are added up",

	"rpc/trace -> cluster":  "spans are of requests and asks, and say what was decided",
	"rpc/trace -> rpc/door": "doors ask by it instead of the node",

	"rpc/hold -> cluster":    "a reservation is a request of the node",
	"rpc/hold -> limiter":    "the state of a hold is limiter's",
	"rpc/hold -> rpc/access": "settling needs the right of its client",
	"rpc/hold -> rpc/door":   "what is wrong with a hold is a fault as others are",
	"rpc/hold -> rpc/peer":   "the id of a hold says its limit as frames do",
	"rpc/hold -> rpc/wire":   "ids are protobuf by hand",

	"rpc/page -> rpc/door": "pages say faults as problems",

	"rpc/notation -> cluster":  "decisions become messages",
	"rpc/notation -> limiter":  "limits become messages and JSON, and are read from both",
	"rpc/notation -> proto":    "the messages of penstock.v1",
	"rpc/notation -> rpc/door": "durations are milliseconds at every door",

	"rpc/history -> cluster": "it observes the node, and reads its counters",
	"rpc/history -> limiter": "what remains of a limit says what its heir did not know",

	"rpc/peer -> rpc/catalog": "what nodes say of limits that were put travels beside asks",

	"rpc/catalog -> cluster":        "limits that were put are in force at the node",
	"rpc/catalog -> limiter":        "… as limits",
	"rpc/catalog -> limiter/policy": "… which are kept as files have them",

	"rpc/clock -> limiter": "instants are limiter's",

	"rpc/peer -> cluster":           "a node's asks travel to other nodes, and theirs to it",
	"rpc/peer -> cluster/ownership": "frames carry what boots say about ownership",
	"rpc/peer -> limiter":           "frames carry limits, decisions and entries",
	"rpc/peer -> ring":              "partitions that frames name are those there are",
	"rpc/peer -> proto":             "the names of the service and its method",
	"rpc/peer -> rpc/clock":         "lines and their door read the node's clock",
	"rpc/peer -> rpc/door":          "what all gRPC doors have in common",
	"rpc/peer -> rpc/wire":          "frames are protobuf by hand",

	"rpc/door -> rpc/wire":      "gRPC doors read into its buffers",
	"rpc/door -> cluster":       "what is wrong with a request, the node says",
	"rpc/door -> limiter":       "requests bring limits along",
	"rpc/door -> limiter/rules": "every door may be asked by attributes",
	"rpc/door -> rpc/access":    "every door asks what its client may do",
	"rpc/door -> rpc/audit":     "what clients change is recorded",
	"rpc/door -> rpc/fair":      "a refusal for want of room is a fault like others",

	"rpc/gubernator -> cluster":   "a message becomes a request of the node",
	"rpc/gubernator -> limiter":   "requests state their limits",
	"rpc/gubernator -> proto":     "the messages of its protocol",
	"rpc/gubernator -> rpc/audit": "resets are recorded",
	"rpc/gubernator -> rpc/clock": "deadlines of calls are instants of the node",
	"rpc/gubernator -> rpc/door":  "what all doors share",
	"rpc/gubernator -> rpc/page":  "its JSON is written as on other pages",
	"rpc/gubernator -> rpc/wire":  "messages with a thousand requests are read and written by hand",

	"rpc/redis -> cluster":    "a round of commands becomes a request of the node",
	"rpc/redis -> limiter":    "the numbers of a command are a limit",
	"rpc/redis -> rpc/access": "a client names itself by AUTH",
	"rpc/redis -> rpc/audit":  "DEL is recorded",
	"rpc/redis -> rpc/door":   "what all doors share",
	"rpc/redis -> rpc/fair":   "rounds are refused while there are too many requests",
	"rpc/redis -> rpc/resp":   "the protocol's bytes",

	"rpc/rpctest -> cluster":       "nodes for tests",
	"rpc/rpctest -> limiter":       "… with limits",
	"rpc/rpctest -> limiter/rules": "… and rules",
	"rpc/rpctest -> ring":          "… that hold all partitions",
	"rpc/rpctest -> proto":         "items of messages",
	"rpc/rpctest -> rpc/clock":     "… on the machine's clock",
	"rpc/rpctest -> rpc/wire":      "messages that hand and library must read alike",
	"rpc/rpctest -> rpc/resp":      "a client of the Redis protocol",

	"rpc/envoy -> cluster": "a request of an Envoy becomes one of the node",
	"rpc/envoy -> limiter": "descriptors meet limits, or bring them along",
	"rpc/envoy -> limiter/policy": "an Envoy says what a request is, and the files which limit " +
		"that meets",
	"rpc/envoy -> rpc/door":   "all doors say errors alike",
	"rpc/envoy -> rpc/page":   "… also on pages",
	"rpc/envoy -> rpc/audit":  "what an Envoy gives back is recorded",
	"rpc/envoy -> rpc/access": "an Envoy is a client with rights as any other",

	"rpc/client -> proto":    "the client speaks the public protocol",
	"rpc/client -> rpc/wire": "messages of many takes are read by hand, as nodes read them",
	"rpc/client -> limiter": "while no node answers, or while a lease lasts, the client decides " +
		"by the same arithmetic, if it is told to",
	"rpc/client -> rpc/clock": "… by a clock that tells when the machine was suspended",

	"embedded -> cluster":        "a node, wired for programs that have it inside",
	"embedded -> cluster/gossip": "… as a member of a cluster",
	"embedded -> limiter":        "… with limits and a table",
	"embedded -> limiter/rules":  "… and rules, if it has some",
	"embedded -> rpc":            "… and certificates",
	"embedded -> rpc/hold":       "… and errors about reservations, as doors say them",
	"embedded -> rpc/clock":      "… and the clock of the machine",
	"embedded -> rpc/door":       "… and what opens a door",
	"embedded -> rpc/peer":       "… and lines to other nodes",
	"embedded -> rpc/catalog":    "… and hears of limits that are put at other nodes",
	"embedded -> rpc/client":     "it answers as a client does, so that a program can have either",

	"sim -> cluster":        "the imagined world runs the real node",
	"sim -> limiter":        "it gives each node a real table",
	"sim -> limiter/policy": "the limits of a scenario are written as in every other file",
	"sim -> ring":           "rings are built once for many worlds",

	"sim -> cluster/ownership": "the judge reads what voters acknowledge, and worlds begin in a " +
		"configuration",

	"cmd/node -> limiter":        "wiring",
	"cmd/node -> limiter/policy": "wiring",
	"cmd/node -> textfile":       "wiring",
	"cmd/node -> limiter/rules":  "policy says which rules match",
	"cmd/node -> ring":           "wiring",
	"cmd/node -> cluster":        "wiring",
	"cmd/node -> cluster/gossip": "wiring",
	"cmd/node -> rpc":            "wiring",
	"cmd/node -> rpc/admin":      "wiring",
	"cmd/node -> rpc/native":     "wiring",
	"cmd/node -> rpc/overview":   "wiring",
	"cmd/node -> rpc/web":        "wiring",
	"cmd/node -> rpc/clock":      "wiring",
	"cmd/node -> rpc/door":       "wiring",
	"cmd/node -> rpc/envoy":      "wiring",
	"cmd/node -> rpc/peer":       "wiring",
	"cmd/node -> rpc/redis":      "wiring",
	"cmd/node -> rpc/access":     "wiring",
	"cmd/node -> rpc/catalog":    "wiring",
	"cmd/node -> rpc/history":    "wiring",
	"cmd/node -> rpc/audit":      "wiring",
	"cmd/node -> rpc/fair":       "wiring",
	"cmd/node -> rpc/trace":      "wiring",
	"cmd/node -> rpc/client":     "the verbs that ask a running node",
	"cmd/node -> proto":          "the verbs that ask a running node",
	"cmd/node -> sim":            "the verb sim",
}

// testArrows are imports that only tests have.
var testArrows = map[string]string{
	"penstock -> limiter/policy": "the limits that README.md shows are read",

	"cmd/node -> rpc/rpctest": "a collector of spans",

	"cmd/node -> embedded": "the table of docs/doors.md tries a node inside a program as well",

	"rpc -> cluster":        "what holds for several doors is tested here",
	"rpc -> limiter":        "… at nodes with limits",
	"rpc -> limiter/policy": "… and with those of Envoys' files",
	"rpc -> limiter/rules":  "… and rules",
	"rpc -> ring":           "… and partitions",
	"rpc -> proto":          "… asked over gRPC",
	"rpc -> rpc/access":     "… by clients with rights",
	"rpc -> rpc/audit":      "… whose changes are recorded",
	"rpc -> rpc/clock":      "… on the machine's clock",
	"rpc -> rpc/envoy":      "… at all doors, this one among them",
	"rpc -> rpc/fair":       "… with a gate",
	"rpc -> rpc/gubernator": "… and this one",
	"rpc -> rpc/hold":       "… about holds",
	"rpc -> rpc/native":     "… at this door",
	"rpc -> rpc/peer":       "… with lines between them",
	"rpc -> rpc/redis":      "… and at this door",
	"rpc -> rpc/rpctest":    "nodes, authorities and a client of the Redis protocol",
	"rpc -> rpc/web":        "… and at this door",
	"rpc -> rpc/wire":       "messages are read and written as gRPC does it",

	"rpc/native -> limiter/rules": "calls with attributes are tested with rules",
	"rpc/native -> rpc/rpctest":   "nodes and limits",
	"rpc/native -> rpc/page":      "problems of pages are read",
	"rpc/native -> rpc/web":       "a request over HTTP and over gRPC is answered alike",

	"rpc/web -> rpc/clock":   "the door is tested with what a node remembers",
	"rpc/web -> rpc/rpctest": "nodes, limits and requests of pages",

	"rpc/gubernator -> rpc/rpctest": "nodes and messages",

	"rpc/peer -> rpc/rpctest": "limits, authorities and patience",

	"rpc/envoy -> rpc/clock":  "the door is tested beside those of a node with a clock",
	"rpc/envoy -> rpc/native": "… which are these",
	"rpc/envoy -> rpc/web":    "… of either kind",

	"rpc/redis -> rpc":         "certificates of clients",
	"rpc/redis -> rpc/native":  "the same limit through other doors counts as one",
	"rpc/redis -> rpc/web":     "… of either kind",
	"rpc/redis -> rpc/clock":   "… which need the node's clock",
	"rpc/redis -> rpc/rpctest": "nodes, authorities and a client of the Redis protocol",
	"rpc/redis -> proto":       "… asked over gRPC",

	"rpc/client -> rpc/door":      "… and its doors closed",
	"rpc/client -> rpc/peer":      "… or with lines to others",
	"rpc/client -> rpc/native":    "the client is tested against the real door",
	"rpc/client -> cluster":       "… of a real node",
	"rpc/client -> limiter/rules": "… that has rules",
	"rpc/client -> ring":          "… or of three that hold every partition",
}

// walls say why an import that is no arrow is forbidden. A room's "*" is the reason for everything
// it has no entry of its own for.
var walls = map[string]string{
	"penstock -> *": "the root is a page of documentation",

	"limiter -> ring": "limiter and ring are strangers: a decision does not depend on where " +
		"it is made",
	"limiter -> cluster": "a table serves one process without any cluster; cluster stands on it",
	"limiter -> *":       "limiter is arithmetic at the bottom of the house: it knows nobody",

	"limiter/policy -> cluster": "policy reads files into limits; what a cluster does with them " +
		"is not its business",
	"limiter/policy -> *": "policy stands on limiter and its rules alone",

	"limiter/rules -> *": "rules say which limits a request falls under; who takes them is not " +
		"known here",

	"ring -> limiter": "ring and limiter are strangers: an owner does not depend on what is " +
		"decided there",
	"ring -> cluster": "the ring is a pure function of member ids; cluster stands on it",
	"ring -> *":       "ring is arithmetic at the bottom of the house: it knows nobody",

	"cluster -> cluster/gossip": "a node is handed Views, so that the simulator can hand them " +
		"over as well",
	"cluster -> limiter/policy": "a node is handed limits, wherever they were written",
	"cluster -> rpc": "a node speaks through the Network it is given: the same node " +
		"runs in the simulator",
	"cluster -> proto": "the wire's messages stop at rpc; the node has types of its own",
	"cluster -> sim":   "the node does not know in which world it runs",
	"cluster -> *": "cluster stands on limiter, its rules, ring and its own rooms " +
		"alone",

	"cluster/breaker -> *": "a breaker owns its state: it knows no peer and no view",
	"cluster/charges -> *": "the charges own their state: the node tells them",
	"cluster/debts -> *": "the debts own their state: they say what is owed, and the node " +
		"sends it",
	"cluster/dedup -> *": "the memory of answers owns its state: it knows no node, no view and " +
		"no network",
	"cluster/lease -> *": "the leases own their state: they return what is to be said, and the " +
		"node says it",
	"cluster/denial -> *": "the memory of denials owns its state: the node tells it what follows " +
		"from its view",

	"cluster/ownership -> *": "agreement is a function of messages and instants: it knows " +
		"neither nodes, keys nor rings",

	"cluster/gossip -> limiter": "membership does not depend on what the members decide",
	"cluster/gossip -> *":       "gossip makes Views and nothing else",

	"proto -> *": "generated messages stand alone",

	"rpc/catalog -> *": "the log knows the node and how limits are written; peer carries it",
	"rpc/history -> *": "what a node remembers knows the node, and no wire",

	"rpc -> *": "rpc itself is certificates, and the tests of all doors together",

	"rpc/web -> cluster/gossip": "doors serve whatever View the node has",
	"rpc/web -> limiter/policy": "limits reach the doors through the node, whatever file they " +
		"came from",
	"rpc/web -> rpc/envoy": "a program that embeds a node need not know Envoy's types; cmd/node " +
		"adds the door",
	"rpc/web -> rpc/native": "doors do not know each other: what they share stands below both",
	"rpc/web -> *": "a door turns a wire into calls of the node; wiring is cmd/node's " +
		"work",

	"rpc/native -> cluster/gossip": "doors serve whatever View the node has",
	"rpc/native -> limiter/policy": "limits reach the doors through the node, whatever file they " +
		"came from",
	"rpc/native -> rpc/envoy": "a program that embeds a node need not know Envoy's types; " +
		"cmd/node adds the door",
	"rpc/native -> rpc/web": "doors do not know each other: what they share stands below both",
	"rpc/native -> rpc/client": "a server does not need its own client; it would come along into " +
		"every node",
	"rpc/native -> *": "a door turns a wire into calls of the node; wiring is cmd/node's work",

	"rpc/admin -> rpc/native": "both doors have operators' calls; calls know no door",
	"rpc/admin -> rpc/web":    "both doors have operators' calls; calls know no door",
	"rpc/admin -> *":          "admin answers operators by what the node knows",

	"rpc/overview -> proto":   "nodes ask each other in JSON, which lines carry as it is",
	"rpc/overview -> rpc/web": "the overview is numbers; pages are the HTTP door's",
	"rpc/overview -> *":       "the overview asks nodes and adds up, and knows no door",

	"rpc/trace -> *": "a tracer stands between a door and the node, and knows neither codecs nor " +
		"where spans go",

	"rpc/hold -> *": "ids of holds are made and read here, for every door",

	"rpc/page -> *": "page writes answers: what they are about is not known here",

	"rpc/notation -> *": "notation writes and reads values: what is done with them is not known " +
		"here",

	"rpc/clock -> *": "the machine's clock knows instants and nothing that reads them",

	"rpc/peer -> rpc/native": "lines know no door for clients",
	"rpc/peer -> rpc/web":    "lines know no door for clients",
	"rpc/peer -> *":          "lines carry what a node says; wiring is cmd/node's work",

	"rpc/wire -> *": "wire is bytes: what they mean is not known here",

	"rpc/door -> rpc/native": "doors stand on what they share, and not the other way round",
	"rpc/door -> rpc/web":    "doors stand on what they share, and not the other way round",
	"rpc/door -> *":          "what all doors share knows none of them, and no protocol",

	"rpc/gubernator -> rpc/native": "doors do not know each other: what they share is in rpc/door",
	"rpc/gubernator -> rpc/web":    "doors do not know each other: what they share is in rpc/door",
	"rpc/gubernator -> *": "a door turns a wire into calls of the node; wiring is " +
		"cmd/node's work",

	"rpc/redis -> rpc/native": "doors do not know each other: what they share is in rpc/door",
	"rpc/redis -> rpc/web":    "doors do not know each other: what they share is in rpc/door",
	"rpc/redis -> *": "a door turns a wire into calls of the node; wiring is cmd/node's " +
		"work",

	"rpc/rpctest -> rpc/native": "internal tests of every door import rpctest, so it imports no " +
		"door",
	"rpc/rpctest -> rpc/web": "internal tests of every door import rpctest, so it imports no door",
	"rpc/rpctest -> *": "rpctest makes what tests of several doors need, from what all doors " +
		"stand on",

	"rpc/audit -> *": "audit keeps lines: what they are about is not known here",

	"textfile -> *": "to read a file one need not know what is in it",

	"rpc/access -> *": "access is rules about names: it knows neither the node nor a protocol",
	"rpc/fair -> *": "fair counts requests by the names of clients: it knows neither the node " +
		"nor a protocol",

	"rpc/ui -> *": "the page is files: what it shows it asks for as every client does",

	"rpc/resp -> *": "resp is the bytes of a protocol, and knows neither commands nor what they " +
		"are about",

	"rpc/envoy -> rpc/client": "a door does not need a client",
	"rpc/envoy -> proto":      "this door has messages of its own",
	"rpc/envoy -> *": "a door turns a wire into calls of the node; wiring is cmd/node's " +
		"work",

	"rpc/client -> rpc":     "a program that uses the client must not get a server with it",
	"rpc/client -> cluster": "a program that uses the client must not get a node with it",
	"rpc/client -> *":       "the client knows the protocol only",

	"sim -> rpc": "the imagined world has no sockets: its runs are the same bytes for " +
		"the same seed",
	"sim -> cluster/gossip": "memberlist has goroutines and clocks of its own; the simulator " +
		"gives Views itself",
	"sim -> *": "the imagined world holds nodes and nothing of the real world",

	"embedded -> *": "embedded wires a node; what a node does stands elsewhere",

	"cmd/node -> *": "what only cmd/node would use belongs to cmd/node",
}

// modules says which rooms may know a module of somebody else, and why no other may. A module that
// is not here is refused.
var modules = map[string]struct{ rooms, reason string }{
	"github.com/cespare/xxhash/v2": {
		rooms:  "limiter ring cluster cluster/gossip sim",
		reason: "a key is hashed once, by limiter.Hash, and the hash is passed on",
	},
	"github.com/buraksezer/consistent": {
		rooms: "ring",
		reason: "the library panics and hangs on bad input; ring guards it and copies its answer " +
			"into a table",
	},
	"github.com/hashicorp/memberlist": {
		rooms: "cluster/gossip",
		reason: "memberlist brings goroutines, clocks and callbacks under locks; only Views " +
			"leave cluster/gossip",
	},
	"github.com/hashicorp/go-sockaddr": {
		rooms:  "cluster/gossip",
		reason: "it finds the address that memberlist would tell others",
	},
	"google.golang.org/grpc": {
		rooms: "rpc rpc/web rpc/native rpc/admin rpc/hold rpc/door rpc/gubernator rpc/peer " +
			"rpc/trace rpc/wire rpc/rpctest rpc/client rpc/envoy proto",
		reason: "the transport is a hand of the node: what stands below rpc runs without it in " +
			"the simulator",
	},
	"google.golang.org/protobuf": {
		rooms: "rpc rpc/native rpc/hold rpc/gubernator rpc/peer rpc/wire rpc/rpctest " +
			"rpc/client rpc/envoy proto",
		reason: "messages of the wire stop at rpc; the node has types of its own",
	},
	"google.golang.org/genproto": {
		rooms:  "rpc/client",
		reason: "details of gRPC errors are the doors' matter",
	},
	"github.com/envoyproxy/go-control-plane/envoy": {
		rooms: "rpc/envoy",
		reason: "Envoy's messages as its authors generate them: copies of our own would collide " +
			"with theirs in a program that has both",
	},
	"github.com/prometheus/client_golang": {
		rooms: "rpc/web rpc/native rpc/door rpc/envoy rpc/gubernator rpc/peer rpc/redis",
		reason: "rooms count in plain fields beside the branch they count; a door reads them at " +
			"scrape",
	},
	"github.com/goccy/go-yaml": {
		rooms: "limiter/policy sim cmd/node rpc/access",
		reason: "YAML is how people write limits, scenarios, settings and clients; nothing else " +
			"reads it",
	},
	"github.com/fsnotify/fsnotify": {
		rooms:  "limiter/policy rpc",
		reason: "files are watched where they are read: limits, and certificates",
	},
	"go.opentelemetry.io/otel": {
		rooms: "rpc/trace rpc/rpctest cmd/node",
		reason: "spans are made between a door and the node, and sent by cmd/node: the node " +
			"carries ids along, and knows no library",
	},
	"go.opentelemetry.io/proto/otlp": {
		rooms:  "rpc/rpctest",
		reason: "tests read the spans that nodes send",
	},
	"github.com/alecthomas/kong": {
		rooms:  "cmd/node",
		reason: "flags become plain fields at the top of the house",
	},
	"github.com/klauspost/compress": {
		rooms:  "cmd/node",
		reason: "it unpacks logs in half the time of the standard library; nothing else is packed",
	},
	"golang.org/x/term": {
		rooms:  "cmd/node",
		reason: "screens that take keys one by one are made by verbs alone",
	},
	"github.com/HdrHistogram/hdrhistogram-go": {
		rooms:  "cmd/node",
		reason: "load is generated by the verb bench; a node counts in plain fields",
	},
}

// testModules are modules that tests may import in any room; what is not in modules as well, only
// they may.
var testModules = map[string]string{
	"pgregory.net/rapid":                  "properties",
	"golang.org/x/net/http2":              "half-sent requests, frame by frame",
	"go.uber.org/goleak":                  "goroutines that stayed",
	"github.com/rogpeppe/go-internal":     "scripts of command lines",
	"github.com/anishathalye/porcupine":   "linearizability",
	"google.golang.org/grpc/test/bufconn": "connections in memory",
	"github.com/goccy/go-yaml": "files of documentation that tests hold against the " +
		"sources",
}

// pure are the rooms where a decision is a function of (state, now, request): the same in
// production, in a test and in the simulator. Rooms below them (limiter/policy, cluster/gossip) are
// not meant.
var pure = []string{
	"limiter", "ring", "cluster", "cluster/breaker", "cluster/charges", "cluster/debts",
	"cluster/dedup",
	"cluster/denial", "cluster/lease", "cluster/ownership",
}

// impure says what a pure room does not contain, and why.
var impure = map[string]string{
	"go": "a goroutine runs in an order that no seed decides; Clock.AfterFunc starts what " +
		"must start",
	"select": "select picks at random; Network.Call is the only place to wait",
	"channel": "who waits on a channel waits for a goroutine; Network.Call is the only place " +
		"to wait",
	"clock":  "a decision is taken at the instant that it is given; Clock is the only clock",
	"random": "a random number that no seed decides makes a run that nobody can repeat",
	"log":    "what is worth saying is returned or counted; rpc and cmd/node say it",
	"context": "deadlines are instants, on the node's own clock; a context brings channels and " +
		"timers along",
	"system":    "rooms below rpc know no files, sockets, processes or signals",
	"dotimport": "a dot import hides whose functions are called, from readers and from this test",
}

// impureImports are packages of which the import alone breaks a rule of impure.
var impureImports = map[string]string{
	"context":          "context",
	"log":              "log",
	"log/slog":         "log",
	"crypto/rand":      "random",
	"net":              "system",
	"net/http":         "system",
	"os":               "system",
	"os/exec":          "system",
	"os/signal":        "system",
	"syscall":          "system",
	"testing/synctest": "system",
}

// impureExceptions are places that may break a rule, and why.
var impureExceptions = map[string]string{
	"limiter/memory_linux.go: import syscall": "the table's slots lie outside the collector's " +
		"heap, which would keep as much again in reserve",
}

// impureNames are functions and types of a package that break a rule of impure. Durations, and
// generators with a seed of their own, do not.
var impureNames = map[string]map[string]string{
	"time": {
		"Now": "clock", "Since": "clock", "Until": "clock",
		"Sleep": "clock", "After": "clock", "AfterFunc": "clock", "Tick": "clock",
		"NewTimer": "clock", "NewTicker": "clock", "Timer": "clock", "Ticker": "clock",
	},
	"math/rand":    globalRandom,
	"math/rand/v2": globalRandom,
	"hash/maphash": {
		"MakeSeed": "random", "String": "random", "Bytes": "random",
		"Comparable": "random",
	},
}

var globalRandom = func() map[string]string {
	names := map[string]string{}
	for _, name := range strings.Fields(
		`Exp ExpFloat64 Float32 Float64 Int Int31 Int31n Int32 Int32N Int63 Int63n Int64
		Int64N IntN Intn N NormFloat64 Perm Read Seed Shuffle Uint Uint32 Uint32N Uint64
		Uint64N UintN`) {
		names[name] = "random"
	}
	return names
}()

// emptyNames are names of folders and packages that say nothing about what is inside. (A word that
// fits everything attracts everything.)
var emptyNames = []string{
	"base", "common", "helper", "helpers", "impl", "internal", "lib", "manager", "misc", "pkg",
	"shared", "types",
	"util", "utils",
}

func TestArrowsBetweenRooms(t *testing.T) {
	files := readModule(t)
	report(t, findForbiddenArrows(files))

	used := map[string]bool{}
	for _, f := range files {
		for _, to := range f.rooms() {
			used[f.room()+" -> "+to] = true
		}
	}
	for arrow := range arrows {
		if !used[arrow] {
			t.Errorf("%q: no file imports it any more; strike it out", arrow)
		}
	}
}

func TestModulesStayInTheirRooms(t *testing.T) { report(t, findForeignModules(readModule(t))) }

func TestPureRooms(t *testing.T) {
	files := readModule(t)
	for _, room := range pure {
		if !slices.ContainsFunc(files, func(f *file) bool { return f.dir == room && !f.test }) {
			t.Errorf("room %s has no source: has it moved? Then move the rule with it", room)
		}
	}
	report(t, findImpurities(files))
}

func TestEveryPackageTellsWhatItDoes(t *testing.T) { report(t, findUndocumented(readModule(t))) }

func TestNamesSaySomething(t *testing.T) { report(t, findEmptyNames(readModule(t))) }

// TestTablesAreComplete keeps the tables themselves in order: a room that is in no table would be
// free to do anything, and an arrow that is a wall as well would mean that nobody has decided.
func TestTablesAreComplete(t *testing.T) {
	rooms := map[string]bool{}
	for _, f := range readModule(t) {
		rooms[f.room()] = true
	}
	for room := range rooms {
		if _, found := walls[room+" -> *"]; !found {
			t.Errorf("room %s has no entry %q in walls: say what it is not for", room, room+" -> *")
		}
	}
	for name, table := range map[string]map[string]string{
		"arrows":     arrows,
		"testArrows": testArrows, "walls": walls,
	} {
		for arrow, reason := range table {
			from, to, found := strings.Cut(arrow, " -> ")
			if !found || reason == "" {
				t.Errorf("%s: %q: write \"a -> b\" and a reason", name, arrow)
			}
			for _, room := range []string{from, to} {
				if room != "*" && !rooms[room] {
					t.Errorf("%s: %q: there is no room %s", name, arrow, room)
				}
			}
		}
	}
	for arrow := range arrows {
		if _, found := walls[arrow]; found {
			t.Errorf("%q is an arrow and a wall", arrow)
		}
	}
}

// TestShapeTestsCanFail plants every kind of fault in sources that exist only here.
func TestShapeTestsCanFail(t *testing.T) {
	for _, test := range []struct {
		name string
		path string // where the source would stand
		body string // what follows "package x"
		find func([]*file) []finding
		want string // a part of the only finding; empty: none
	}{
		{"arrow", "cluster/a.go", `import "penstock/limiter"`, findForbiddenArrows, ""},
		{
			"wall with a reason of its own", "limiter/a.go", `import "penstock/ring"`,
			findForbiddenArrows, "strangers",
		},
		{
			"wall by default", "ring/a.go", `import "penstock/sim"`, findForbiddenArrows,
			"it knows nobody",
		},
		{
			"wall under another name", "cluster/a.go", `import x "penstock/rpc"`,
			findForbiddenArrows,
			"the same node runs in the simulator",
		},
		{
			"wall behind a build tag", "limiter/a_windows.go", `import "penstock/cluster"`,
			findForbiddenArrows, "cluster stands on it",
		},
		{
			"wall in a test", "limiter/a_test.go", `import "penstock/ring"`, findForbiddenArrows,
			"strangers",
		},
		{
			"arrow of tests in a test", "rpc/client/a_test.go", `import "penstock/rpc/native"`,
			findForbiddenArrows, "",
		},
		{
			"arrow of tests in the product", "rpc/client/a.go", `import "penstock/rpc"`,
			findForbiddenArrows, "must not get a server",
		},
		{
			"room below proto", "cluster/a.go", `import "penstock/proto/penstock/v1"`,
			findForbiddenArrows, "messages stop at rpc",
		},
		{
			"new room", "attic/a.go", `import "penstock/limiter"`, findForbiddenArrows,
			"attic is in no table",
		},

		{
			"module in its room", "cluster/gossip/a.go", `import "github.com/hashicorp/memberlist"`,
			findForeignModules, "",
		},
		{
			"module elsewhere", "cluster/a.go", `import "github.com/hashicorp/memberlist"`,
			findForeignModules, "only Views leave",
		},
		{
			"package of a module", "sim/a.go", `import "google.golang.org/grpc/codes"`,
			findForeignModules, "the transport is a hand",
		},
		{
			"module like a known one", "rpc/web/a.go", `import "google.golang.org/grpcx"`,
			findForeignModules, "in no table",
		},
		{"unknown module", "rpc/a.go", `import "example.com/x"`, findForeignModules, "in no table"},
		{
			"module of tests in a test", "ring/a_test.go", `import "pgregory.net/rapid"`,
			findForeignModules, "",
		},
		{
			"module of tests in the product", "ring/a.go", `import "pgregory.net/rapid"`,
			findForeignModules, "only for tests",
		},
		{
			"module of some rooms and all tests", "rpc/a_test.go",
			`import "github.com/goccy/go-yaml"`,
			findForeignModules, "",
		},
		{
			"module of some rooms elsewhere", "rpc/a.go", `import "github.com/goccy/go-yaml"`,
			findForeignModules, "how people write limits",
		},
		{"standard library", "ring/a.go", `import "slices"`, findForeignModules, ""},

		{"go", "limiter/a.go", `func f() { go f() }`, findImpurities, impure["go"]},
		{"WaitGroup.Go", "cluster/a.go", "import \"sync\"\nfunc f() { var g sync.WaitGroup; " +
			"g.Go(f) }", findImpurities, impure["go"]},
		{"select", "ring/a.go", `func f() { select {} }`, findImpurities, impure["select"]},
		{"channel", "cluster/a.go", `var c chan int`, findImpurities, impure["channel"]},
		{
			"receive", "cluster/a.go", `func f(x T) { <-x.Done() }`, findImpurities,
			impure["channel"],
		},
		{"send", "cluster/a.go", `func f(x T) { x.c <- 1 }`, findImpurities, impure["channel"]},
		{
			"now", "limiter/a.go", "import \"time\"\nvar t = time.Now()", findImpurities,
			impure["clock"],
		},
		{
			"now as a value", "limiter/a.go", "import \"time\"\nvar now = time.Now", findImpurities,
			impure["clock"],
		},
		{
			"now under another name", "limiter/a.go", "import chronos \"time\"\nvar t = " +
				"chronos.Now()",
			findImpurities, impure["clock"],
		},
		{
			"timer", "cluster/a.go", "import \"time\"\ntype t struct { *time.Timer }",
			findImpurities,
			impure["clock"],
		},
		{"AfterFunc of the library", "cluster/a.go", "import \"time\"\nfunc f() { " +
			"time.AfterFunc(1, f) }", findImpurities, impure["clock"]},
		{
			"AfterFunc of a Clock", "cluster/a.go", `func f(c Clock) { c.AfterFunc(1, g) }`,
			findImpurities, "",
		},
		{
			"duration", "limiter/a.go", "import \"time\"\nconst d = 3 * time.Second",
			findImpurities,
			"",
		},
		{
			"global random", "ring/a.go", "import \"math/rand/v2\"\nvar n = rand.IntN(3)",
			findImpurities, impure["random"],
		},
		{"random with a seed", "ring/a.go", "import \"math/rand/v2\"\nvar r = " +
			"rand.New(rand.NewPCG(1, 2))", findImpurities, ""},
		{"crypto/rand", "cluster/a.go", `import "crypto/rand"`, findImpurities, impure["random"]},
		{"log", "cluster/a.go", `import "log/slog"`, findImpurities, impure["log"]},
		{"context", "cluster/a.go", `import "context"`, findImpurities, impure["context"]},
		{"file", "limiter/a.go", `import "os"`, findImpurities, impure["system"]},
		{"dot import", "limiter/a.go", `import . "time"`, findImpurities, impure["dotimport"]},
		{"go in a test", "limiter/a_test.go", `func f() { go f() }`, findImpurities, ""},
		{"go in gossip", "cluster/gossip/a.go", `func f() { go f() }`, findImpurities, ""},
		{
			"file in an excepted source", "limiter/memory_linux.go", `import "os"`, findImpurities,
			impure["system"],
		},
		{"exception", "limiter/memory_linux.go", `import "syscall"`, findImpurities, ""},
		{"file of limits", "limiter/policy/a.go", `import "os"`, findImpurities, ""},

		{"no package doc", "ring/a.go", ``, findUndocumented, "ring: no file says"},
		{"util", "rpc/util/a.go", ``, findEmptyNames, "rpc/util"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := parse(test.path, []byte("package x\n"+test.body))
			if err != nil {
				t.Fatal(err)
			}
			found := test.find([]*file{f})
			switch {
			case test.want == "" && len(found) == 0:
			case test.want != "" && len(found) == 1 &&
				strings.Contains(found[0].String(), test.want):
			default:
				t.Errorf("found %v, want %q", found, test.want)
			}
		})
	}
}

// finding is one fault: where, what, and why it is one.
type finding struct{ where, what, why string }

func (f finding) String() string { return fmt.Sprintf("%s: %s: %s", f.where, f.what, f.why) }

func report(t *testing.T, findings []finding) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

func findForbiddenArrows(files []*file) (findings []finding) {
	for _, f := range files {
		for _, to := range f.rooms() {
			arrow := f.room() + " -> " + to
			if _, found := arrows[arrow]; found {
				continue
			}
			if _, found := testArrows[arrow]; found && f.test {
				continue
			}
			why := cmp.Or(walls[arrow], walls[f.room()+" -> *"],
				"room "+f.room()+" is in no table of shape_test.go")
			findings = append(findings, finding{f.path, "imports " + to, why})
		}
	}
	return findings
}

func findForeignModules(files []*file) (findings []finding) {
	for _, f := range files {
		for _, imported := range f.imports {
			if why := foreign(f, imported); why != "" {
				findings = append(findings, finding{f.path, "imports " + imported, why})
			}
		}
	}
	return findings
}

// foreign says why f must not import a package of somebody else, or nothing.
func foreign(f *file, imported string) (why string) {
	host, _, _ := strings.Cut(imported, "/")
	if within(imported, modulePath) || !strings.Contains(host, ".") {
		return "" // the standard library, or this module
	}
	if m := longest(maps.Keys(testModules), imported); m != "" {
		if f.test {
			return ""
		}
		if _, known := modules[m]; !known {
			return "only for tests: " + testModules[m]
		}
	}
	m := modules[longest(maps.Keys(modules), imported)]
	if slices.Contains(strings.Fields(m.rooms), f.room()) {
		return ""
	}
	return cmp.Or(m.reason, "the module is in no table of shape_test.go: say there which room "+
		"may know it, and why")
}

func findImpurities(files []*file) (findings []finding) {
	for _, f := range files {
		if f.test || !slices.Contains(pure, f.dir) {
			continue
		}
		names := map[string]string{} // what an imported package is called in f → its path
		for _, spec := range f.syntax.Imports {
			imported := importPath(spec)
			rule := impureImports[imported]
			if rule != "" && impureExceptions[f.path+": import "+imported] == "" {
				findings = append(findings, f.impurity(spec, "import "+imported, rule))
			}
			if spec.Name != nil && spec.Name.Name == "." {
				findings = append(findings, f.impurity(spec, "import . "+imported, "dotimport"))
			}
			names[localName(spec)] = imported
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if what, rule := impurity(n, names); rule != "" {
				findings = append(findings, f.impurity(n, what, rule))
			}
			return true
		})
	}
	return findings
}

// impurity says which rule the node itself breaks, if any.
func impurity(n ast.Node, names map[string]string) (what, rule string) {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "go", "go"
	case *ast.CallExpr:
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
			return "a call of Go", "go"
		}
	case *ast.SelectStmt:
		return "select", "select"
	case *ast.ChanType:
		return "chan", "channel"
	case *ast.SendStmt:
		return "a send", "channel"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "a receive", "channel"
		}
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			return names[x.Name] + "." + n.Sel.Name, impureNames[names[x.Name]][n.Sel.Name]
		}
	}
	return "", ""
}

func (f *file) impurity(n ast.Node, what, rule string) finding {
	return finding{
		fmt.Sprintf("%s:%d", f.path, f.positions.Position(n.Pos()).Line), what,
		impure[rule],
	}
}

func findUndocumented(files []*file) (findings []finding) {
	told := map[string]bool{}
	for _, f := range files {
		if !f.test {
			told[f.dir] = told[f.dir] || f.syntax.Doc != nil &&
				len(strings.Fields(f.syntax.Doc.Text())) >= 5
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(told)) {
		if !told[dir] {
			findings = append(findings, finding{
				dir, "no file says what the package does",
				"a newcomer begins with the comment above the word package",
			})
		}
	}
	return findings
}

func findEmptyNames(files []*file) (findings []finding) {
	seen := map[string]bool{}
	for _, f := range files {
		name := f.syntax.Name.Name
		for _, word := range append(strings.Split(f.dir, "/"), name) {
			if slices.Contains(emptyNames, word) && !seen[f.dir] {
				seen[f.dir] = true
				findings = append(findings, finding{
					f.dir, "is called " + word,
					"a word that fits everything attracts everything; say what it is",
				})
			}
		}
	}
	return findings
}

// file is one source of this module, whatever its build tags.
type file struct {
	path      string // slashes, from the module's root
	dir       string
	test      bool
	imports   []string
	syntax    *ast.File
	positions *token.FileSet
}

const modulePath = "penstock"

// rootRoom is the name of the room at the root, whatever path the module is published under.
const rootRoom = "penstock"

// room is the room that f stands in: its folder, but one room for everything below proto.
func (f *file) room() string { return roomOf(f.dir) }

func roomOf(dir string) string {
	switch {
	case dir == "." || dir == "":
		return rootRoom
	case within(dir, "proto"):
		return "proto"
	}
	return dir
}

// rooms are the other rooms of this module that f imports.
func (f *file) rooms() (rooms []string) {
	for _, imported := range f.imports {
		if !within(imported, modulePath) {
			continue
		}
		room := roomOf(strings.TrimPrefix(strings.TrimPrefix(imported, modulePath), "/"))
		if room != f.room() {
			rooms = append(rooms, room)
		}
	}
	return rooms
}

// within reports whether the package or folder p is root or below it.
func within(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// longest is the longest of roots that p is within, or empty.
func longest(roots iter.Seq[string], p string) (best string) {
	for root := range roots {
		if within(p, root) && len(root) > len(best) {
			best = root
		}
	}
	return best
}

func parse(name string, source []byte) (*file, error) {
	positions := token.NewFileSet()
	syntax, err := parser.ParseFile(positions, name, source,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &file{
		path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		syntax: syntax, positions: positions,
	}
	for _, spec := range syntax.Imports {
		f.imports = append(f.imports, importPath(spec))
	}
	return f, nil
}

func importPath(spec *ast.ImportSpec) string {
	imported, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic(fmt.Sprintf("the parser let %s through as an import", spec.Path.Value))
	}
	return imported
}

// localName is what an imported package is called in its file, as far as its path tells.
func localName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	elements := strings.Split(importPath(spec), "/")
	last := elements[len(elements)-1]
	if len(elements) > 1 && len(last) > 1 && last[0] == 'v' &&
		strings.Trim(last[1:], "0123456789") == "" {
		last = elements[len(elements)-2]
	}
	return last
}

// readModule parses every Go file of this module: all build tags, tests as well, no other module's
// folder.
func readModule(t *testing.T) (files []*file) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return enter(name)
		case filepath.Ext(name) != ".go":
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(name), source)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go file here: run in the module's root")
	}
	return files
}

// enter skips the folders that the go tool skips.
func enter(dir string) error {
	if dir == "." {
		return nil
	}
	name := filepath.Base(dir)
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); !errors.Is(err, fs.ErrNotExist) {
		return fs.SkipDir
	}
	return nil
}
