package redis

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"penstock/rpc/access"
	"penstock/rpc/resp"
)

// command is a command that the door knows.
type command struct {
	name        string // in small letters
	least, most int    // words after the name
	keys        keyWords
	do          func(c *connection, words [][]byte)
	early       bool // also for clients that have not said who they are
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
		// there is one database
		{"select", 1, 1, noKeys, func(c *connection, _ [][]byte) { c.say("OK") }, false, false},
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

// say replies with a short text.
func (c *connection) say(text string) {
	r := c.begin()
	r.out = resp.AppendStatus(r.out, text)
}

func (c *connection) number(n int64) {
	r := c.begin()
	r.out = resp.AppendInt(r.out, n)
}

func (c *connection) echo(words [][]byte) {
	r := c.begin()
	r.out = resp.AppendBulk(r.out, words[1])
}

// ready is what a load balancer of Smyte's servers asks.
func (c *connection) ready([][]byte) {
	config := &c.door.config
	if config.Node.Ready() && (config.Draining == nil || !config.Draining()) {
		c.number(1)
	} else {
		c.number(0)
	}
}

func (c *connection) quit([][]byte) {
	c.say("OK")
	c.ending = true
}

// reset makes the connection as new.
func (c *connection) reset([][]byte) {
	c.endQueue()
	c.version, c.name = 2, ""
	c.from.Pass, c.known, c.named = nil, c.door.admits == nil, ""
	c.showCertificate()
	c.say("RESET")
}

// redisUser is the user that stands for any client; its name does as well.
const redisUser = "default"

const (
	wrongPass = "WRONGPASS invalid username-password pair or user is disabled."
	noToken   = "ERR AUTH was sent, but this node has no --auth-token-file: everybody may ask; leave the password away"
)

// auth is AUTH [user] token.
func (c *connection) auth(words [][]byte) {
	user := []byte(redisUser)
	if len(words) == 3 {
		user = words[1]
	}
	if fault := c.identify(user, words[len(words)-1]); fault != "" {
		c.fail(fault)
		return
	}
	c.say("OK")
}

// identify lets the client in if the token is right, and else says what is wrong.
func (c *connection) identify(user, token []byte) (fault string) {
	switch {
	case c.door.admits == nil:
		return noToken
	}
	ticket := c.door.admits.Token(token)
	client, err := ticket.Client()
	if ticket == nil || err != nil || string(user) != redisUser && string(user) != client.Name {
		return wrongPass
	}
	c.from.Pass, c.known, c.named = ticket, true, ""
	return ""
}

// showCertificate lets the client in by its certificate, if that is one of the node's clients.
func (c *connection) showCertificate() {
	t, ok := c.conn.(*tls.Conn)
	if !ok || c.door.admits == nil {
		return
	}
	state := t.ConnectionState()
	if ticket := c.door.admits.Certificate(&state); ticket != nil {
		c.from.Pass, c.known, c.named = ticket, true, ""
	}
}

// admitted reports whether the client is known, and not one that has lost its token.
func (c *connection) admitted() bool {
	if c.from.Pass != nil {
		if _, err := c.from.Pass.Client(); err != nil {
			c.from.Pass, c.known = nil, false
		}
	}
	return c.known
}

// permitted reports whether the client may do that, and replies if it may not.
func (c *connection) permitted(ask access.Ask) bool {
	if c.from.Pass == nil {
		return true
	}
	client, err := c.from.Pass.Client()
	if err == nil {
		err = client.MayAsk(ask)
	}
	if err != nil {
		c.failAccess(err)
	}
	return err == nil
}

// failAccess replies that the client is unknown, or lacks a right.
func (c *connection) failAccess(err error) {
	if errors.Is(err, access.ErrUnknown) { // its token was taken away just now
		c.fail("NOAUTH Authentication required.")
		return
	}
	c.fail("NOPERM " + err.Error())
}

// hello is HELLO [version [AUTH user token] [SETNAME name]].
func (c *connection) hello(words [][]byte) {
	version, name := c.version, c.name
	if len(words) > 1 {
		n, ok := cellInt(words[1])
		if !ok {
			c.fail("ERR Protocol version is not an integer or out of range")
			return
		}
		if n < 2 || n > 3 {
			c.fail("NOPROTO unsupported protocol version")
			return
		}
		version = int(n)
	}
	for i := 2; i < len(words); {
		switch left := len(words) - i; {
		case isWord(words[i], "AUTH") && left >= 3:
			if fault := c.identify(words[i+1], words[i+2]); fault != "" {
				c.fail(fault)
				return
			}
			i += 3
		case isWord(words[i], "SETNAME") && left >= 2:
			if !isClientName(words[i+1]) {
				c.fail(badClientName)
				return
			}
			name = string(words[i+1])
			i += 2
		default:
			c.fail(fmt.Sprintf("ERR Syntax error in HELLO option '%.128s'", words[i]))
			return
		}
	}
	if !c.known {
		c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option " +
			"can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	c.version, c.name = version, name
	r := c.begin()
	b := resp.AppendMap(r.out, c.version, 7)
	b = resp.AppendBulk(resp.AppendBulk(b, "server"), "penstock")
	b = resp.AppendBulk(resp.AppendBulk(b, "version"), serverVersion)
	b = resp.AppendInt(resp.AppendBulk(b, "proto"), int64(c.version))
	b = resp.AppendInt(resp.AppendBulk(b, "id"), int64(c.id))
	b = resp.AppendBulk(resp.AppendBulk(b, "mode"), "standalone")
	b = resp.AppendBulk(resp.AppendBulk(b, "role"), "master")
	r.out = resp.AppendArray(resp.AppendBulk(b, "modules"), 0)
}

// serverVersion is that of the Server server whose handshake this is: clients choose by it what they
// may say.
const serverVersion = "7.0.0"

const badClientName = "ERR Client names cannot contain spaces, newlines or special characters, and have at most 128 bytes."

func isClientName(name []byte) bool {
	return len(name) <= 128 && !bytes.ContainsFunc(
		name, func(r rune) bool { return r < '!' || r > '~' },
	)
}

// client is CLIENT and what clients say with it when they connect.
func (c *connection) client(words [][]byte) {
	what, rest := words[1], words[2:]
	switch {
	case isWord(what, "SETNAME") && len(rest) == 1:
		if !isClientName(rest[0]) {
			c.fail(badClientName)
			return
		}
		c.name = string(rest[0])
		c.say("OK")
	case isWord(what, "GETNAME") && len(rest) == 0:
		r := c.begin()
		if c.name == "" {
			r.out = resp.AppendNull(r.out, c.version)
		} else {
			r.out = resp.AppendBulk(r.out, c.name)
		}
	case isWord(what, "ID") && len(rest) == 0:
		c.number(int64(c.id))
	// What a client may hold in its own cache is told when it changes. No reply here can be held.
	case isWord(what, "TRACKING") && len(rest) >= 1,
		isWord(what, "SETINFO") && len(rest) == 2,
		isWord(what, "NO-EVICT") && len(rest) == 1,
		isWord(what, "NO-TOUCH") && len(rest) == 1:
		c.say("OK")
	default:
		c.fail(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for 'client %.128s'; "+
			"there is: setname, getname, setinfo, id, tracking, no-evict, no-touch", bytes.ToLower(what)))
	}
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
		c.fail(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for 'command %.128s'; "+
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

// info is INFO: what a person or a monitor looks for first. All numbers of a node are at /metrics.
func (c *connection) info([][]byte) {
	config, stats := &c.door.config, &c.door.stats
	var b strings.Builder
	line := func(name, value string) { b.WriteString(name + ":" + value + "\r\n") }
	b.WriteString("# Server\r\n")
	line("redis_version", serverVersion)
	line("redis_mode", "standalone")
	line("server_name", "penstock")
	line("node", config.Node.ID())
	b.WriteString("\r\n# Clients\r\n")
	line("connected_clients", strconv.Itoa(c.door.clients()))
	line("maxclients", strconv.Itoa(c.door.most))
	b.WriteString("\r\n# Stats\r\n")
	line("total_connections_received", strconv.FormatUint(stats.connections.Load(), 10))
	line("total_commands_processed", strconv.FormatUint(stats.commands.Load(), 10))
	line("rejected_connections", strconv.FormatUint(stats.turnedAway.Load(), 10))
	line("total_error_replies", strconv.FormatUint(stats.errors.Load(), 10))
	b.WriteString("\r\n# Replication\r\n")
	line("role", "master")
	r := c.begin()
	r.out = resp.AppendBulk(r.out, b.String())
}
