package redis

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"penstock/rpc/access"
	"penstock/rpc/resp"
)

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
	noToken   = "ERR AUTH was sent, but this node has no --auth-token-file: any client may ask; " +
		"omit the password"
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
	var user, token []byte
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
			user, token = words[i+1], words[i+2]
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
	if token != nil { // when all of the command is right: an error changes nothing
		if fault := c.identify(user, token); fault != "" {
			c.fail(fault)
			return
		}
	}
	if !c.known {
		c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the " +
			"HELLO <proto> AUTH <user> <pass> option " +
			"can be used to authenticate the client and select the RESP protocol version " +
			"at the same time")
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

// serverVersion is that of the Redis server with this handshake: clients choose by it what they
// may say.
const serverVersion = "7.0.0"

const badClientName = "ERR Client names cannot contain spaces, newlines or special characters, " +
	"and have at most 128 bytes."

func isClientName(name []byte) bool {
	return len(name) <= 128 && !bytes.ContainsFunc(name,
		func(r rune) bool { return r < '!' || r > '~' })
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
		c.fail(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for "+
			"'client %.128s'; "+
			"there is: setname, getname, setinfo, id, tracking, no-evict, no-touch",
			bytes.ToLower(what)))
	}
}

// database is SELECT. There is one database, under every number.
func (c *connection) database(words [][]byte) {
	switch n, ok := cellInt(words[1]); {
	case !ok || n != int64(int32(n)):
		c.fail("ERR value is not an integer or out of range")
	case n < 0:
		c.fail("ERR DB index is out of range")
	default:
		c.say("OK")
	}
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
