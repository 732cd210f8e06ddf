package redis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/native"
	"penstock/rpc/resp"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// redisAt opens the door for the Redis protocol of n and returns it and its address.
func redisAt(t testing.TB, n *cluster.Node, c Config) (*Server, string) {
	t.Helper()
	c.Node = n
	d := New(c)
	return d, rpctest.Serve(t, d)
}

// testdata/resp.json holds commands and replies of Smyte's rate limiter and of redis-cell, byte for
// byte.
type redisSession struct {
	Name      string
	Exchanges []struct {
		Request string
		Reply   *string
	}
}

func redisSessions(t testing.TB) []redisSession {
	t.Helper()
	data, err := os.ReadFile("testdata/resp.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Sessions []redisSession }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Sessions) == 0 {
		t.Fatal("no sessions")
	}
	return file.Sessions
}

// Promise: replies are those of the origins, byte for byte, one by one and all at once, whichever
// node is asked.
func TestRedisVectors(t *testing.T) {
	for _, session := range redisSessions(t) {
		t.Run(session.Name, func(t *testing.T) {
			for nodes := 1; nodes <= 3; nodes += 2 {
				s := rpctest.Joined(t, nodes)
				_, address := redisAt(t, s[0], Config{})
				c := rpctest.TalkTo(t, address)
				for _, x := range session.Exchanges {
					c.Send(x.Request)
					if x.Reply == nil {
						t.Fatalf("%q has no reply to compare", x.Request)
					}
					c.Expect(x.Request, *x.Reply)
				}
			}
			_, address := redisAt(t, rpctest.Joined(t, 1)[0], Config{})
			c := rpctest.TalkTo(t, address)
			var requests, replies strings.Builder
			for _, x := range session.Exchanges {
				requests.WriteString(x.Request)
				replies.WriteString(*x.Reply)
			}
			c.Send(requests.String())
			c.Expect("all at once", replies.String())
		})
	}
}

// What the vectors leave out, from the origins' sources.
func TestRedisCommands(t *testing.T) {
	s := rpctest.Joined(t, 1)[0]
	_, address := redisAt(t, s, Config{})
	const (
		integer = "-Value is not an integer or out of range\r\n"
		syntax  = "-Syntax error\r\n"
		cell    = "-Cell error: Store error: "
	)
	c := rpctest.TalkTo(t, address)
	for _, row := range []struct{ line, want string }{
		// A session: strict, begun by the client that was admitted, over after a pause of a whole
		// period.
		{"RL.SESSIONIZE u 1 3600 STRICT AT 0", "*2\r\n:1\r\n:0\r\n"},
		{"RL.SESSIONIZE u 1 3600 STRICT AT 1", "*2\r\n:0\r\n:0\r\n"},
		{"RL.PSESSIONIZE u 1 3600000 AT 1000000", "*2\r\n:0\r\n:0\r\n"},
		{"RL.SESSIONIZE u 1 3600 AT 3605", "*2\r\n:0\r\n:0\r\n"},
		{"RL.SESSIONIZE u 1 3600 AT 7205", "*2\r\n:1\r\n:7205000\r\n"},
		{"RL.GET u 1 3600 AT 7205", ":1\r\n"}, // a bucket of its own
		{"RL.SESSIONIZE v 3 60 TAKE 2 AT 10", "*2\r\n:3\r\n:10000\r\n"},
		{"RL.SESSIONIZE v 3 60 TAKE 2 AT 20", "*2\r\n:1\r\n:10000\r\n"},

		// Strict: a request that finds nothing, or takes the last, puts the refill off.
		{"RL.REDUCE s 2 60 TAKE 2 STRICT AT 100", ":2\r\n"},
		{"RL.REDUCE s 2 60 STRICT AT 150", ":0\r\n"},
		{"RL.GET s 2 60 AT 209", ":0\r\n"},
		{"RL.GET s 2 60 AT 210", ":2\r\n"},
		// Without: the marks stay a minute apart.
		{"RL.REDUCE p 2 60 TAKE 2 AT 100", ":2\r\n"},
		{"RL.REDUCE p 2 60 AT 150", ":0\r\n"},
		{"RL.GET p 2 60 AT 160", ":2\r\n"},
		// Seconds and milliseconds, a refill that is given and one that is not: one bucket.
		{"RL.REDUCE m 5 2 TAKE 1 AT 7", ":5\r\n"},
		{"RL.PREDUCE m 5 2000 REFILL 5 TAKE 1 AT 7000", ":4\r\n"},
		// The last of two counts; numbers have signs, zeros and blanks.
		{"RL.REDUCE d 10 60 TAKE 9 TAKE 3 AT 6", ":10\r\n"},
		{"RL.GET d +010 060 AT 6", ":7\r\n"},
		{"RL.GET d 10 60 AT 9223372036854775", ":10\r\n"},

		{"RL.REDUCE k 10 0", integer},
		{"RL.REDUCE k -1 60", integer},
		{"RL.REDUCE k 9223372036854775808 60", integer},
		{"RL.PREDUCE k 10 2147483648", integer},
		{"RL.REDUCE k 10 2147483648", integer},
		{"RL.REDUCE k 10 60 TAKE -1", integer},
		{"RL.REDUCE k 10 60 REFILL 0", integer},
		{"RL.REDUCE k 10 60 AT -1", integer},
		{"RL.REDUCE k 10 60 AT 9223372036854776", integer},
		{"RL.REDUCE k 10 60 AT 9223372036854775808", integer},
		{"RL.REDUCE k 1e3 60", integer},
		{"RL.REDUCE k 10 60 FROM x", integer},
		{"RL.REDUCE k 10 60 FROM 1", syntax},
		{"RL.GET k 10 60 TAKE 1", syntax},
		{"RL.GET k 10", "-Wrong number of arguments for 'rl.get' command\r\n"},
		{"RL.GET k 10 60 1 2 3 4 5 6", "-Wrong number of arguments for 'rl.get' command\r\n"},
		{"RL.REDUCE k 10 60 1 2 3 4 5 6 7 8", "-Wrong number of arguments for " +
			"'rl.reduce' command\r\n"},
		{"RL.SESSIONIZE k 10", "-Wrong number of arguments for 'rl.sessionize' command\r\n"},
		{"RL.GET k 10 60 AT 1", ":10\r\n"}, // nothing of that was charged

		// A refusal says when; a burst that changes keeps what was used; cost 0 looks; negative
		// gives back.
		{"CL.THROTTLE t 1 1 60 2", "*5\r\n:0\r\n:2\r\n:0\r\n:-1\r\n:120\r\n"},
		{"CL.THROTTLE t 1 1 60 0", "*5\r\n:0\r\n:2\r\n:0\r\n:-1\r\n:120\r\n"},
		{"CL.THROTTLE t 1 1 60 1", "*5\r\n:1\r\n:2\r\n:0\r\n:60\r\n:120\r\n"},
		{"CL.THROTTLE t 1 1 60 3", "*5\r\n:1\r\n:2\r\n:0\r\n:-1\r\n:120\r\n"},
		{"CL.THROTTLE t 4 1 60 0", "*5\r\n:0\r\n:5\r\n:3\r\n:-1\r\n:120\r\n"},
		{"CL.THROTTLE t 1 1 60 -1", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n"},
		{"CL.THROTTLE t 1 1 60 -9", "*5\r\n:0\r\n:2\r\n:2\r\n:-1\r\n:0\r\n"},
		{"CL.THROTTLE t 1 1", cell + "Usage: cl.throttle <key> <max_burst> <count per period> " +
			"<period> [<quantity>]\r\n"},
		{"CL.THROTTLE t 1 1 60 1 1", cell + "Usage: cl.throttle <key> <max_burst> <count per " +
			"period> <period> [<quantity>]\r\n"},
		{"CL.THROTTLE t x 1 60", cell + "Couldn't parse as integer: x\r\n"},
		{"CL.THROTTLE t 1 1 60 1.5", cell + "Couldn't parse as integer: 1.5\r\n"},
		{"CL.THROTTLE t 1 9223372036854775808 60", cell + "Couldn't parse as integer: " +
			"9223372036854775808\r\n"},
		{"CL.THROTTLE t 1 9223372036854775807 1", cell + "Zero rates are not supported\r\n"},
		{"CL.THROTTLE t -1 1 60", cell + "max_burst is -1; 0 to 1099511627775 are accepted\r\n"},
		{"CL.THROTTLE t 9223372036854775807 1 60", cell + "max_burst is 9223372036854775807; 0 " +
			"to 1099511627775 are accepted\r\n"},
		{"CL.THROTTLE t 1 -1 60", cell + "count per period is -1; 1 to 9223372036854775807 " +
			"are accepted\r\n"},
		{"CL.THROTTLE t 1 1 9223372036854775807", cell + "period is 9223372036854775807; 1 to " +
			"2305843009 seconds are accepted\r\n"},

		{"PING", "+PONG\r\n"},
		{"ECHO hello", "$5\r\nhello\r\n"},
		{"ECHO", "-Wrong number of arguments for 'echo' command\r\n"},
		{"SELECT 3", "+OK\r\n"},
		{"SELECT x", "-ERR value is not an integer or out of range\r\n"},
		{"SELECT 4294967296", "-ERR value is not an integer or out of range\r\n"},
		{"SELECT -1", "-ERR DB index is out of range\r\n"},
		{"READY", ":1\r\n"},
		{"CLIENT GETNAME", "$-1\r\n"},
		{"CLIENT SETNAME me", "+OK\r\n"},
		{"CLIENT GETNAME", "$2\r\nme\r\n"},
		{"CLIENT SETINFO LIB-NAME x", "+OK\r\n"},
		{"CLIENT TRACKING ON OPTIN", "+OK\r\n"},
		{"CLIENT ID", ":1\r\n"},
		{"CLIENT KILL x", "-ERR unknown subcommand or wrong number of arguments for 'client " +
			"kill'; there is: setname, getname, setinfo, id, tracking, no-evict, no-touch\r\n"},
		{"COMMAND COUNT", ":29\r\n"},
		{"COMMAND DOCS", "*0\r\n"},
		{"COMMAND INFO rl.get nothing", "*2\r\n*6\r\n$6\r\nrl.get\r\n:-4\r\n*1\r\n+fast\r\n:1\r\n" +
			":1\r\n:1\r\n$-1\r\n"},
		{"COMMAND INFO del", "*1\r\n*6\r\n$3\r\ndel\r\n:-2\r\n*1\r\n+fast\r\n:1\r\n:-1\r\n:1\r\n"},
		{"AUTH secret", "-ERR AUTH was sent, but this node has no --auth-token-file: any client " +
			"may ask; omit the password\r\n"},
		{"FLUSHALL", "-Unknown command: 'flushall'\r\n"},
		{"A.COMMAND.OF.MORE.THAN.16.BYTES", "-Unknown command: " +
			"'a.command.of.more.than.16.bytes'\r\n"},
		{"HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"},
		{"HELLO 4", "-NOPROTO unsupported protocol version\r\n"},
		{"HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'\r\n"},
		{"HELLO 3 SETNAME you", "%7\r\n$6\r\nserver\r\n$8\r\npenstock\r\n$7\r\nversion\r\n$5\r\n" +
			"7.0.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n" +
			"$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\n" +
			"modules\r\n*0\r\n"},
		{"CLIENT GETNAME", "$3\r\nyou\r\n"},
		{"CL.THROTTLE r3 15 30 60", "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n"},
		{"COMMAND DOCS", "%0\r\n"},
		{"RESET", "+RESET\r\n"},
		{"CLIENT GETNAME", "$-1\r\n"},
		{"QUIT", "+OK\r\n"},
	} {
		c.Says(row.line, row.want)
	}
	c.Closed("after QUIT")

	c = rpctest.TalkTo(t, address)
	c.Send(rpctest.Command("RL.GET", "k", " 10 ", "\t60"))
	c.Expect("blanks around numbers", ":10\r\n")
	c.Send(rpctest.Command("CL.THROTTLE", "k", " 1", "1", "60"))
	c.Expect("blanks around numbers", cell+"Couldn't parse as integer:  1\r\n")
	c.Send(rpctest.Command("RL.GET", "", "10", "60"))
	c.Expect("an empty key", "-ERR key: has 0 bytes; 1 to 1024 are accepted\r\n")
	c.Send(rpctest.Command("RL.REDUCE", strings.Repeat("k", cluster.MaxKey), "10", "60"))
	c.Expect("the longest key", ":10\r\n")
	c.Send(rpctest.Command("CL.THROTTLE", strings.Repeat("k", cluster.MaxKey+1), "1", "1", "60"))
	c.Expect("a long key", "-ERR key: has 1025 bytes; 1 to 1024 are accepted\r\n")
	c.Send(rpctest.Command("CLIENT", "SETNAME", "a b"))
	c.Expect("a blank in a name", "-"+badClientName+"\r\n")
	c.Send(rpctest.Command("BAD\r\n+OK"))
	c.Expect("a command with a line break", "-Unknown command: 'bad  +ok'\r\n")
	c.Send(rpctest.Command("INFO"))
	if line, err := c.In.ReadString('\n'); err != nil || !strings.HasPrefix(line, "$") {
		t.Errorf("INFO: %q, %v", line, err)
	}
}

// Seconds as redis-cell counts them: a rest of less than a millisecond is dropped, any other is a
// second.
func TestRedisCellSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		limiter.Never: -1, 0: 0, 1: 0, time.Millisecond - 1: 0, time.Millisecond: 1, time.Second: 1,
		time.Second + time.Millisecond - 1: 1, time.Second + time.Millisecond: 2,
		720 * time.Second: 720,
	} {
		if got := cellSeconds(d); got != want {
			t.Errorf("%v is %d s, want %d", d, got, want)
		}
	}
}

// Promise: the same key and limit through two doors count as one, whichever node is asked.
func TestRedisCountsWithOtherDoors(t *testing.T) {
	s := rpctest.Joined(t, 3)
	key := rpctest.OwnKey(s[2], 0)
	_, first := redisAt(t, s[0], Config{})
	_, second := redisAt(t, s[1], Config{})
	pages := httptest.NewServer(web.New(web.Config{Node: s[1]}))
	defer pages.Close()
	post := func(inline string, cost, want int64) {
		t.Helper()
		body := fmt.Sprintf(`{"inline":%s,"key":%q,"cost":%d}`, inline, key, cost)
		answer, err := http.Post(pages.URL+"/v1/check", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var d struct {
			Remaining int64
			Owner     string
		}
		if err := json.NewDecoder(answer.Body).Decode(&d); err != nil ||
			answer.StatusCode != http.StatusOK || d.Remaining != want || d.Owner != "n3" {
			t.Errorf("%s: %s, %+v, %v; want %d remaining at n3", body, answer.Status, d, err, want)
		}
	}
	a, b := rpctest.TalkTo(t, first), rpctest.TalkTo(t, second)
	throttle := "CL.THROTTLE " + key + " 9 10 3600"
	a.Says(throttle, "*5\r\n:0\r\n:10\r\n:9\r\n:-1\r\n:360\r\n")
	post(`{"name":"cl.throttle","algorithm":"gcra","limit":10,"per":"1h","burst":10}`, 3, 6)
	b.Says(throttle+" 6", "*5\r\n:0\r\n:10\r\n:0\r\n:-1\r\n:3600\r\n")
	a.Says(throttle+" 11", "*5\r\n:1\r\n:10\r\n:0\r\n:-1\r\n:3600\r\n")
	post(`{"name":"cl.throttle","algorithm":"gcra","limit":10,"per":"1h","burst":10}`, 1, 0)

	bucket := `{"algorithm":"token_bucket","client_time":true,"limit":10,"per":"1h","refill":5}`
	a.Says("RL.REDUCE "+key+" 10 3600 REFILL 5 TAKE 4", ":10\r\n")
	post(bucket, 2, 4)
	b.Says("RL.GET "+key+" 10 3600 REFILL 5", ":4\r\n")
	grpcDoor := native.NewServer(native.Config{Node: s[0], Clock: clock.New()})
	defer grpcDoor.Stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go grpcDoor.Serve(l)
	asked, err := rpctest.Dial(t, l.Addr().String()).Check(rpctest.Patience(t),
		&penstockv1.CheckRequest{Items: []*penstockv1.Item{{
			Key: []byte(key),
			Inline: &penstockv1.InlineLimit{
				Algorithm: penstockv1.Algorithm_ALGORITHM_TOKEN_BUCKET, ClientTime: true, Limit: 10,
				PerMs: time.Hour.Milliseconds(), Refill: 5,
			},
		}}})
	if err != nil || asked.Decisions[0].Remaining != 3 {
		t.Errorf("gRPC: %v, %v; want 3 remaining", asked, err)
	}
	// another refill is another bucket
	post(`{"algorithm":"token_bucket","client_time":true,"limit":10,"per":"1h"}`, 1, 9)
	a.Says("RL.SESSIONIZE "+key+" 3 3600 AT 0", "*2\r\n:3\r\n:0\r\n")
	// at the owner's time it is full
	post(`{"algorithm":"token_bucket","client_time":true,"sessions":true,"limit":3,"per":"1h"}`, 0,
		3)
}

// What a client sends that is no command ends its connection: with a reason, or without one if a
// browser speaks.
func TestRedisProtocolErrors(t *testing.T) {
	s := rpctest.Joined(t, 1)[0]
	d, address := redisAt(t, s, Config{})
	for _, row := range []struct{ raw, want string }{
		{"*0\r\n", "-Protocol Error: Invalid Array length\r\n"},
		{"*65\r\n", "-Protocol Error: Invalid Array length\r\n"},
		{"*1\r\n$999999999\r\n", "-Protocol Error: Invalid Bulk String length\r\n"},
		{"*1\r\n$4\r\nPINGPING\r\n", "-Protocol Error: Expect '\\r\\n'\r\n"},
		{"RL.GET k 1 1\r\n", "-Protocol Error: Invalid Array length\r\n"},
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "-Protocol Error: Invalid Array length\r\n"},
		{"POST / HTTP/1.1\r\nHost: x\r\n\r\n*1\r\n$4\r\nPING\r\n", ""},
		{"\r\nHost: x\r\n", ""},
		{"PING\r\nQUIT\r\n", "+PONG\r\n+OK\r\n"},
		{"ping\r\n" + rpctest.Command("PING") + "*x", "+PONG\r\n+PONG\r\n-Protocol Error: " +
			"Invalid Array length\r\n"},
	} {
		c := rpctest.TalkTo(t, address)
		c.Send(row.raw)
		c.Expect(row.raw, row.want)
		c.Closed(row.raw)
	}
	if n := d.stats.broken.Load(); n != 9 {
		t.Errorf("%d connections counted as broken, want 9", n)
	}
}

// Promise: replies come in the order of their commands, however many are sent before the first is
// read.
func TestRedisPipeline(t *testing.T) {
	for nodes := 1; nodes <= 3; nodes += 2 {
		s := rpctest.Joined(t, nodes)
		_, address := redisAt(t, s[0], Config{})
		c := rpctest.TalkTo(t, address)
		const rounds, keys = 3000, 100
		var sent, want bytes.Buffer
		left := [keys]int{}
		for i := range rounds {
			key := i % keys
			fmt.Fprint(&sent, rpctest.Command("RL.REDUCE", fmt.Sprintf("key-%d", key), "20",
				"60", "AT", "0"))
			fmt.Fprintf(&want, ":%d\r\n", max(0, 20-left[key]))
			left[key]++
			switch i % 50 {
			case 17:
				sent.WriteString(rpctest.Command("ECHO", fmt.Sprint(i)))
				want.Write(resp.AppendBulk(nil, fmt.Sprint(i)))
			case 30:
				sent.WriteString(rpctest.Command("RL.GET", "x", "y", "z"))
				want.WriteString("-Value is not an integer or out of range\r\n")
			}
		}
		go io.Copy(c.Conn, bytes.NewReader(sent.Bytes()))
		got := make([]byte, want.Len())
		if n, err := io.ReadFull(c.In, got); err != nil || !bytes.Equal(got, want.Bytes()) {
			i := 0
			for i < n && got[i] == want.Bytes()[i] {
				i++
			}
			t.Fatalf("%d nodes: %d bytes of %d, %v; the first that differs is %d: %.60q, "+
				"want %.60q", nodes, n, want.Len(), err, i, got[i:n], want.Bytes()[i:])
		}
	}
}
