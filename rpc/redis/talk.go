package redis

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"penstock/rpc/resp"
)

// says replies with a short text.
func says(text string) handler {
	return func(c *connection, _ [][]byte) (fault string) {
		c.round.say(text)
		return ""
	}
}

func (c *connection) echo(words [][]byte) (fault string) {
	c.round.text(borrow(words[1]))
	return ""
}

// ready is what a load balancer of Smyte's servers asks.
func (c *connection) ready([][]byte) (fault string) {
	config := &c.door.config
	if config.Node.Ready() && (config.Draining == nil || !config.Draining()) {
		c.round.number(1)
	} else {
		c.round.number(0)
	}
	return ""
}

func (c *connection) quit([][]byte) (fault string) {
	c.round.say("OK")
	c.round.ending = true
	return ""
}

// reset makes the connection as new.
func (c *connection) reset([][]byte) (fault string) {
	c.queue.end()
	c.client.reset()
	c.round.say("RESET")
	return ""
}

// auth is AUTH [user] token.
func (c *connection) auth(words [][]byte) (fault string) {
	user := []byte(redisUser)
	if len(words) == 3 {
		user = words[1]
	}
	if fault := c.client.identify(user, words[len(words)-1]); fault != "" {
		return fault
	}
	c.round.say("OK")
	return ""
}

// hello is HELLO [version [AUTH user token] [SETNAME name]].
func (c *connection) hello(words [][]byte) (fault string) {
	version, name := c.client.version, c.client.name
	var user, token []byte
	if len(words) > 1 {
		n, ok := cellInt(words[1])
		if !ok {
			return "ERR Protocol version is not an integer or out of range"
		}
		if n < 2 || n > 3 {
			return "NOPROTO unsupported protocol version"
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
				return badClientName
			}
			name = string(words[i+1])
			i += 2
		default:
			return fmt.Sprintf("ERR Syntax error in HELLO option '%.128s'", words[i])
		}
	}
	if token != nil { // when all of the command is right: an error changes nothing
		if fault := c.client.identify(user, token); fault != "" {
			return fault
		}
	}
	if !c.client.known {
		return "NOAUTH HELLO must be called with the client already authenticated, otherwise the " +
			"HELLO <proto> AUTH <user> <pass> option " +
			"can be used to authenticate the client and select the RESP protocol version " +
			"at the same time"
	}
	c.client.version, c.client.name = version, name
	r := c.round.begin()
	b := resp.AppendMap(r.out, version, 7)
	b = resp.AppendBulk(resp.AppendBulk(b, "server"), "penstock")
	b = resp.AppendBulk(resp.AppendBulk(b, "version"), serverVersion)
	b = resp.AppendInt(resp.AppendBulk(b, "proto"), int64(version))
	b = resp.AppendInt(resp.AppendBulk(b, "id"), int64(c.client.id))
	b = resp.AppendBulk(resp.AppendBulk(b, "mode"), "standalone")
	b = resp.AppendBulk(resp.AppendBulk(b, "role"), "master")
	r.out = resp.AppendArray(resp.AppendBulk(b, "modules"), 0)
	return ""
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

// named is CLIENT and what clients say with it when they connect.
func (c *connection) named(words [][]byte) (fault string) {
	what, rest := words[1], words[2:]
	switch {
	case isWord(what, "SETNAME") && len(rest) == 1:
		if !isClientName(rest[0]) {
			return badClientName
		}
		c.client.name = string(rest[0])
		c.round.say("OK")
	case isWord(what, "GETNAME") && len(rest) == 0:
		if c.client.name == "" {
			r := c.round.begin()
			r.out = resp.AppendNull(r.out, c.client.version)
		} else {
			c.round.text(c.client.name)
		}
	case isWord(what, "ID") && len(rest) == 0:
		c.round.number(int64(c.client.id))
	// What a client may hold in its own cache is told when it changes. No reply here can be held.
	case isWord(what, "TRACKING") && len(rest) >= 1,
		isWord(what, "SETINFO") && len(rest) == 2,
		isWord(what, "NO-EVICT") && len(rest) == 1,
		isWord(what, "NO-TOUCH") && len(rest) == 1:
		c.round.say("OK")
	default:
		return fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for "+
			"'client %.128s'; "+
			"there is: setname, getname, setinfo, id, tracking, no-evict, no-touch",
			bytes.ToLower(what))
	}
	return ""
}

// database is SELECT. There is one database, under every number.
func (c *connection) database(words [][]byte) (fault string) {
	switch n, ok := cellInt(words[1]); {
	case !ok || n != int64(int32(n)):
		return "ERR value is not an integer or out of range"
	case n < 0:
		return "ERR DB index is out of range"
	}
	c.round.say("OK")
	return ""
}

// info is INFO: what a person or a monitor looks for first. All numbers of a node are at /metrics.
func (c *connection) info([][]byte) (fault string) {
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
	c.round.text(b.String())
	return ""
}

// configure is CONFIG GET: what clients ask for when they connect, and monitors. Nothing can be
// set.
func (c *connection) configure(words [][]byte) (fault string) {
	if !isWord(words[1], "GET") || len(words) < 3 {
		return "ERR unknown subcommand or wrong number of arguments for 'config'; there is: get"
	}
	known := [][2]string{
		{"appendonly", "no"},
		{"databases", "1"},
		{"maxclients", strconv.Itoa(c.door.most)},
		{"maxmemory-policy", "noeviction"},
		{"proto-max-bulk-len", strconv.Itoa(resp.MaxCommand)},
		{"save", ""},
		{"timeout", strconv.Itoa(int(idleTimeout / time.Second))},
	}
	var found [][2]string
	for _, x := range known {
		for _, pattern := range words[2:] {
			if ok, err := path.Match(string(pattern), x[0]); ok && err == nil {
				found = append(found, x)
				break
			}
		}
	}
	r := c.round.begin()
	r.out = resp.AppendMap(r.out, c.client.version, len(found))
	for _, x := range found {
		r.out = resp.AppendBulk(resp.AppendBulk(r.out, x[0]), x[1])
	}
	return ""
}
