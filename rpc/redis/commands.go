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
	do          handler
	when        when
}

// handler replies to a command, or says why it fails: the text of an error.
type handler func(c *connection, words [][]byte) (fault string)

// keyWords says which of the words after a command's name are keys.
type keyWords int8

const (
	noKeys keyWords = iota
	oneKey
	allKeys
)

// when says when a command may come, beside the usual.
type when int8

const (
	early  when = 1 << iota // also from clients that have not named themselves
	atOnce                  // it is done at once, also between MULTI and EXEC
)

// commands are all of them, in the order of the documentation.
var commands []command

func init() { // not a literal: COMMAND lists the table in which it stands
	commands = []command{
		{"rl.reduce", 3, 10, oneKey, bucketVerb{time.Second, true, false}.run, 0},
		{"rl.get", 3, 8, oneKey, bucketVerb{time.Second, false, false}.run, 0},
		{"rl.preduce", 3, 10, oneKey, bucketVerb{time.Millisecond, true, false}.run, 0},
		{"rl.pget", 3, 8, oneKey, bucketVerb{time.Millisecond, false, false}.run, 0},
		{"rl.sessionize", 3, 10, oneKey, bucketVerb{time.Second, true, true}.run, 0},
		{"rl.psessionize", 3, 10, oneKey, bucketVerb{time.Millisecond, true, true}.run, 0},
		{"cl.throttle", 0, resp.MaxArgs, oneKey, (*connection).throttle, 0},
		{"del", 1, resp.MaxArgs, allKeys, (*connection).del, 0},
		{"unlink", 1, resp.MaxArgs, allKeys, (*connection).del, 0},
		{"exists", 1, resp.MaxArgs, allKeys, (*connection).exists, 0},
		{"ttl", 1, 1, oneKey, lasts(inSeconds), 0},
		{"pttl", 1, 1, oneKey, lasts(time.Duration.Milliseconds), 0},
		{"multi", 0, 0, noKeys, (*connection).multi, atOnce},
		{"exec", 0, 0, noKeys, (*connection).exec, atOnce},
		{"discard", 0, 0, noKeys, (*connection).discard, atOnce},
		{"watch", 1, resp.MaxArgs, allKeys, (*connection).watch, atOnce},
		{"unwatch", 0, 0, noKeys, says("OK"), 0},
		{"ping", 0, 0, noKeys, says("PONG"), 0},
		{"echo", 1, 1, noKeys, (*connection).echo, 0},
		{"hello", 0, resp.MaxArgs, noKeys, (*connection).hello, early},
		{"auth", 1, 2, noKeys, (*connection).auth, early},
		{"client", 1, resp.MaxArgs, noKeys, (*connection).named, 0},
		{"config", 1, resp.MaxArgs, noKeys, (*connection).configure, 0},
		{"command", 0, resp.MaxArgs, noKeys, (*connection).commandList, 0},
		{"select", 1, 1, noKeys, (*connection).database, 0},
		{"info", 0, 1, noKeys, (*connection).info, 0},
		{"ready", 0, 0, noKeys, (*connection).ready, 0},
		{"reset", 0, 0, noKeys, (*connection).reset, early | atOnce},
		{"quit", 0, resp.MaxArgs, noKeys, (*connection).quit, early | atOnce},
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
	known := c.last.find(words[0])
	arguments, fault := len(words)-1, ""
	switch {
	case !c.client.admitted() && (known == nil || known.when&early == 0):
		fault = unknown
	case known == nil:
		fault = fmt.Sprintf("Unknown command: '%.128s'", bytes.ToLower(words[0]))
	case arguments < known.least || arguments > known.most:
		fault = fmt.Sprintf("Wrong number of arguments for '%s' command", known.name)
	}
	switch {
	case fault != "":
		c.queue.broken = true
	case c.queue.open && known.when&atOnce == 0:
		if fault = c.queue.add(known, words); fault == "" {
			c.round.say("QUEUED")
		}
	default:
		fault = known.do(c, words)
	}
	if fault != "" {
		c.round.fail(fault)
	}
}

// lastCommand is the command that a client has sent last, as it calls it. Most clients go on with
// the same one.
type lastCommand struct {
	known *command
	name  string // in bytes
	bytes [longestCommand]byte
}

// find returns the command that a client calls name, in letters of any case, or nil.
func (l *lastCommand) find(name []byte) *command {
	if string(name) == l.name {
		return l.known
	}
	if len(name) > len(l.bytes) {
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
		l.known, l.name = known, borrow(l.bytes[:copy(l.bytes[:], name)])
	}
	return known
}

// commandList is COMMAND [COUNT | LIST | DOCS | INFO names…].
func (c *connection) commandList(words [][]byte) (fault string) {
	what := []byte(nil)
	if len(words) > 1 {
		what = words[1]
	}
	r := c.round.begin()
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
		r.out = resp.AppendMap(r.out, c.client.version, 0)
	case isWord(what, "INFO"):
		r.out = resp.AppendArray(r.out, len(words)-2)
		for _, name := range words[2:] {
			if known := byName[strings.ToLower(string(name))]; known != nil {
				r.out = known.describe(r.out)
			} else {
				r.out = resp.AppendNull(r.out, c.client.version)
			}
		}
	default:
		return fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for "+
			"'command %.128s'; "+
			"there is: count, list, docs, info", bytes.ToLower(what))
	}
	return ""
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
