package redis

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"penstock/rpc/resp"
)

// command is a command that the door knows.
type command struct {
	name        string // in small letters
	least, most int    // words after the name
	keys        keyWords
	do          func(c *connection, words [][]byte)
	early       bool // also for clients that have not named themselves
	unqueued    bool // it is done at once, also between MULTI and EXEC
}

// keyWords says which of the words after a command's name are keys.
type keyWords int8

const (
	noKeys keyWords = iota
	oneKey
	allKeys
)

// commands are all of them, in the order of the documentation.
var commands []command

func init() { // not a literal: COMMAND lists the table in which it stands
	bucket := func(v bucketVerb) func(*connection, [][]byte) {
		return func(c *connection, words [][]byte) { c.bucket(v, words) }
	}
	commands = []command{
		{
			"rl.reduce", 3, 10, oneKey, bucket(bucketVerb{unit: time.Second, reduce: true}), false,
			false,
		},
		{"rl.get", 3, 8, oneKey, bucket(bucketVerb{unit: time.Second}), false, false},
		{
			"rl.preduce", 3, 10, oneKey, bucket(bucketVerb{unit: time.Millisecond, reduce: true}),
			false, false,
		},
		{"rl.pget", 3, 8, oneKey, bucket(bucketVerb{unit: time.Millisecond}), false, false},
		{
			"rl.sessionize", 3, 10, oneKey,
			bucket(bucketVerb{unit: time.Second, reduce: true, sessions: true}), false, false,
		},
		{
			"rl.psessionize", 3, 10, oneKey,
			bucket(bucketVerb{unit: time.Millisecond, reduce: true, sessions: true}), false, false,
		},
		{"cl.throttle", 0, resp.MaxArgs, oneKey, (*connection).throttle, false, false},
		{"del", 1, resp.MaxArgs, allKeys, (*connection).del, false, false},
		{"unlink", 1, resp.MaxArgs, allKeys, (*connection).del, false, false},
		{"exists", 1, resp.MaxArgs, allKeys, (*connection).exists, false, false},
		{"ttl", 1, 1, oneKey, (*connection).ttl, false, false},
		{"pttl", 1, 1, oneKey, (*connection).pttl, false, false},
		{"multi", 0, 0, noKeys, (*connection).multi, false, true},
		{"exec", 0, 0, noKeys, (*connection).exec, false, true},
		{"discard", 0, 0, noKeys, (*connection).discard, false, true},
		{"watch", 1, resp.MaxArgs, allKeys, (*connection).watch, false, true},
		{"unwatch", 0, 0, noKeys, func(c *connection, _ [][]byte) { c.say("OK") }, false, false},
		{"ping", 0, 0, noKeys, func(c *connection, _ [][]byte) { c.say("PONG") }, false, false},
		{"echo", 1, 1, noKeys, (*connection).echo, false, false},
		{"hello", 0, resp.MaxArgs, noKeys, (*connection).hello, true, false},
		{"auth", 1, 2, noKeys, (*connection).auth, true, false},
		{"client", 1, resp.MaxArgs, noKeys, (*connection).client, false, false},
		{"config", 1, resp.MaxArgs, noKeys, (*connection).configure, false, false},
		{"command", 0, resp.MaxArgs, noKeys, (*connection).commandList, false, false},
		{"select", 1, 1, noKeys, (*connection).database, false, false},
		{"info", 0, 1, noKeys, (*connection).info, false, false},
		{"ready", 0, 0, noKeys, (*connection).ready, false, false},
		{"reset", 0, 0, noKeys, (*connection).reset, true, true},
		{"quit", 0, resp.MaxArgs, noKeys, (*connection).quit, true, true},
	}
	for i := range commands {
		byName[commands[i].name] = &commands[i]
	}
}

var byName = make(map[string]*command)

// longestCommand is the length from which on no command is known.
const longestCommand = 16

// command replies to one command, now or when the round is decided.
func (c *connection) command(words [][]byte) {
	known := c.last
	if string(words[0]) != c.lastName {
		known = c.find(words[0])
	}
	arguments, fault := len(words)-1, ""
	switch {
	case !c.admitted() && (known == nil || !known.early):
		fault = "NOAUTH Authentication required."
	case known == nil:
		fault = fmt.Sprintf("Unknown command: '%.128s'", bytes.ToLower(words[0]))
	case arguments < known.least || arguments > known.most:
		fault = fmt.Sprintf("Wrong number of arguments for '%s' command", known.name)
	}
	switch {
	case fault != "":
		c.queue.broken = true
		c.fail(fault)
	case c.queue.open && !known.unqueued:
		c.enqueue(known, words)
	default:
		known.do(c, words)
	}
}

// find returns the command that a client calls name, in letters of any case, or nil. Most clients
// go on with the same command, so it is kept as the one that was last.
func (c *connection) find(name []byte) *command {
	if len(name) > len(c.lastBytes) {
		return nil
	}
	var lower [longestCommand]byte
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	known := byName[string(lower[:len(name)])]
	if known != nil {
		c.last, c.lastName = known, borrow(c.lastBytes[:copy(c.lastBytes[:], name)])
	}
	return known
}

// commandList is COMMAND [COUNT | LIST | DOCS | INFO names…].
func (c *connection) commandList(words [][]byte) {
	what := []byte(nil)
	if len(words) > 1 {
		what = words[1]
	}
	r := c.begin()
	switch {
	case what == nil:
		r.out = resp.AppendArray(r.out, len(commands))
		for i := range commands {
			r.out = commands[i].describe(r.out)
		}
	case isWord(what, "COUNT") && len(words) == 2:
		r.out = resp.AppendInt(r.out, int64(len(commands)))
	case isWord(what, "LIST") && len(words) == 2:
		r.out = resp.AppendArray(r.out, len(commands))
		for i := range commands {
			r.out = resp.AppendBulk(r.out, commands[i].name)
		}
	case isWord(what, "DOCS"): // help texts of a client's own prompt
		r.out = resp.AppendMap(r.out, c.version, 0)
	case isWord(what, "INFO"):
		r.out = resp.AppendArray(r.out, len(words)-2)
		for _, name := range words[2:] {
			if known := byName[strings.ToLower(string(name))]; known != nil {
				r.out = known.describe(r.out)
			} else {
				r.out = resp.AppendNull(r.out, c.version)
			}
		}
	default:
		c.fail(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for "+
			"'command %.128s'; "+
			"there is: count, list, docs, info", bytes.ToLower(what)))
	}
}

// describe writes what COMMAND says of it: name, words, flags, first and last key and the step
// between keys.
func (k *command) describe(b []byte) []byte {
	words, first, last := -(k.least + 1), int64(0), int64(0)
	if k.least == k.most {
		words = k.least + 1
	}
	switch k.keys {
	case oneKey:
		first, last = 1, 1
	case allKeys:
		first, last = 1, -1
	}
	b = resp.AppendBulk(resp.AppendArray(b, 6), k.name)
	b = resp.AppendInt(b, int64(words))
	b = resp.AppendStatus(resp.AppendArray(b, 1), "fast")
	return resp.AppendInt(resp.AppendInt(resp.AppendInt(b, first), last), first)
}
