package redis

import (
	"strings"
	"testing"

	"penstock/rpc/rpctest"
)

// What is queued runs in its order, and is answered by one array; what cannot be queued makes EXEC
// refuse all of it.
func TestRedisMulti(t *testing.T) {
	d, address := redisAt(t, rpctest.Joined(t, 1)[0], Config{})
	c := rpctest.TalkTo(t, address)
	for _, row := range []struct{ line, want string }{
		{"EXEC", "-ERR EXEC without MULTI\r\n"},
		{"DISCARD", "-ERR DISCARD without MULTI\r\n"},
		{"MULTI", "+OK\r\n"},
		{"EXEC", "*0\r\n"},
		{"MULTI", "+OK\r\n"},
		{"MULTI", "-ERR MULTI calls can not be nested\r\n"},
		{"CL.THROTTLE m 15 30 60", "+QUEUED\r\n"},
		{"RL.REDUCE m 3 60 AT 0", "+QUEUED\r\n"},
		{"RL.GET m 3 60 AT 0", "+QUEUED\r\n"},
		// what is wrong with its words is said when it runs
		{"CL.THROTTLE m x 30 60", "+QUEUED\r\n"},
		{"PING", "+QUEUED\r\n"},
		{"CL.THROTTLE m 15 30 60", "+QUEUED\r\n"},
		{"EXEC", "*6\r\n*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n:3\r\n:2\r\n-Cell error: Store " +
			"error: Couldn't parse as integer: x\r\n" +
			"+PONG\r\n*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n:4\r\n"},
		{"MULTI", "+OK\r\n"},
		{"RL.REDUCE m 3 60 AT 0 TAKE 2", "+QUEUED\r\n"},
		{"DISCARD", "+OK\r\n"},
		{"MULTI", "+OK\r\n"},
		{"RL.REDUCE m 3 60 AT 0 TAKE 2", "+QUEUED\r\n"},
		{"RL.GET m", "-Wrong number of arguments for 'rl.get' command\r\n"},
		{"PING", "+QUEUED\r\n"},
		{"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"},
		{"MULTI", "+OK\r\n"},
		{"FLUSHALL", "-Unknown command: 'flushall'\r\n"},
		{"EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"},
		{"MULTI", "+OK\r\n"},
		{"WATCH m", "-ERR WATCH inside MULTI is not allowed\r\n"},
		{"RESET", "+RESET\r\n"},
		{"EXEC", "-ERR EXEC without MULTI\r\n"},
		{"RL.GET m 3 60 AT 0", ":2\r\n"}, // nothing of that was charged
		{"UNWATCH", "+OK\r\n"},
	} {
		c.Says(row.line, row.want)
	}
	if n := d.stats.queued.Load(); n != 0 {
		t.Errorf("%d bytes are counted as queued when nothing is", n)
	}
	c.Send(rpctest.Command("WATCH", "m"))
	if line, err := c.In.ReadString('\n'); err != nil || !strings.HasPrefix(line, "-ERR WATCH is "+
		"not supported") {
		t.Errorf("WATCH: %q, %v", line, err)
	}
	// All at once, as a pipeline sends it.
	c.Send(rpctest.Command("MULTI") + rpctest.Command("CL.THROTTLE", "p", "0", "1",
		"60") + rpctest.Command("CL.THROTTLE", "p", "0", "1", "60") + rpctest.Command("EXEC"))
	c.Expect("a pipeline", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n"+
		":60\r\n*5\r\n:1\r\n:1\r\n:0\r\n:60\r\n:60\r\n")
}

// Promise: what is queued is bounded, for a connection and for all, and given back when a
// connection ends.
func TestRedisMultiIsBounded(t *testing.T) {
	d, address := redisAt(t, rpctest.Joined(t, 1)[0], Config{})
	c := rpctest.TalkTo(t, address)
	c.Says("MULTI", "+OK\r\n")
	line, queued := rpctest.Command("RL.GET", strings.Repeat("k", 1000), "10", "60"), 0
	for {
		c.Send(line)
		answer, err := c.In.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if answer != "+QUEUED\r\n" {
			if !strings.HasPrefix(answer, "-ERR more than 1048576 bytes") {
				t.Errorf("%q", answer)
			}
			break
		}
		if queued++; queued > 2000 {
			t.Fatal("2 MB are queued")
		}
	}
	if n := d.stats.queued.Load(); n < queueBytes/2 || n > queueBytes {
		t.Errorf("%d bytes are counted as queued after %d commands", n, queued)
	}
	c.Says("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
	if n := d.stats.queued.Load(); n != 0 {
		t.Errorf("%d bytes are counted as queued after EXEC", n)
	}

	c.Says("MULTI", "+OK\r\n")
	d.stats.queued.Store(queuesMost) // others have queued that much
	c.Send(rpctest.Command("PING"))
	if answer, err := c.In.ReadString('\n'); err != nil || !strings.HasPrefix(answer, "-ERR this "+
		"node has too many commands queued") {
		t.Errorf("%q, %v", answer, err)
	}
	d.stats.queued.Store(0)
	c.Says("DISCARD", "+OK\r\n")
	c.Says("MULTI", "+OK\r\n")
	c.Says("PING", "+QUEUED\r\n")
	c.Says("QUIT", "+OK\r\n")
	c.Closed("after QUIT")
	for d.clients() > 0 {
		continue
	}
	if n := d.stats.queued.Load(); n != 0 {
		t.Errorf("%d bytes are counted as queued by a connection that is gone", n)
	}
}

// A key of CL.THROTTLE is there until its time is over, as in redis-cell, and DEL makes it as new;
// CONFIG GET tells what there is.
func TestRedisKeys(t *testing.T) {
	s := rpctest.Joined(t, 3)
	_, address := redisAt(t, s[0], Config{})
	c := rpctest.TalkTo(t, address)
	for _, row := range []struct{ line, want string }{
		{"EXISTS k", ":0\r\n"},
		{"TTL k", ":-2\r\n"},
		{"PTTL k", ":-2\r\n"},
		{"DEL k", ":0\r\n"},
		{"CL.THROTTLE k 0 1 3600", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3600\r\n"},
		{"CL.THROTTLE l 0 1 3600", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3600\r\n"},
		{"EXISTS k l k none", ":3\r\n"},
		{"TTL k", ":3600\r\n"},
		{"DEL k none k l", ":2\r\n"},
		{"EXISTS k l", ":0\r\n"},
		{"CL.THROTTLE k 0 1 3600", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3600\r\n"},
		{"UNLINK k", ":1\r\n"},
		{"RL.REDUCE k 2 60 AT 0", ":2\r\n"},
		{"EXISTS k", ":0\r\n"}, // a bucket of RL.* is not a key of Redis
		{"DEL k", ":0\r\n"},
		{"RL.GET k 2 60 AT 0", ":1\r\n"},
		{"DEL", "-Wrong number of arguments for 'del' command\r\n"},
		{"TTL k l", "-Wrong number of arguments for 'ttl' command\r\n"},
		{"CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"},
		{"CONFIG GET nothing", "*0\r\n"},
		{"CONFIG GET max* databases", "*6\r\n$9\r\ndatabases\r\n$1\r\n1\r\n$10\r\nmaxclients\r\n" +
			"$5\r\n10000\r\n" +
			"$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n"},
		{"CONFIG SET save x", "-ERR unknown subcommand or wrong number of arguments for " +
			"'config'; there is: get\r\n"},
	} {
		c.Says(row.line, row.want)
	}
	c.Says("CL.THROTTLE k 0 1 3600", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3600\r\n")
	c.Send(rpctest.Command("PTTL", "k"))
	if line, err := c.In.ReadString('\n'); err != nil || len(line) != len(":3599999\r\n") ||
		!strings.HasPrefix(line, ":3") {
		t.Errorf("PTTL: %q, %v", line, err)
	}
	c.Send(rpctest.Command("HELLO", "3"))
	for range 32 {
		if line, _ := c.In.ReadString('\n'); line == "*0\r\n" {
			break
		}
	}
	c.Says("CONFIG GET save", "%1\r\n$4\r\nsave\r\n$0\r\n\r\n")
	c.Says("MULTI", "+OK\r\n")
	c.Says("CONFIG GET nothing", "+QUEUED\r\n")
	c.Says("EXEC", "*1\r\n%0\r\n")
}
