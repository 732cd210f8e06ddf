package rpc

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/resp"
)

// frozen is a clock that stands still.
type frozen limiter.Instant

func (f frozen) Now() limiter.Instant                        { return limiter.Instant(f) }
func (frozen) AfterFunc(time.Duration, func()) (stop func()) { return func() {} }
func (frozen) Call([]cluster.Call)                           { panic("there is nobody to call") }
func (frozen) Wait(limiter.Instant)                          { panic("there is nothing to wait for") }

// loneView has a node called alone. Making one takes longer than all the rest of such a node.
var loneView = sync.OnceValue(func() *cluster.View {
	v, err := cluster.NewView("alone", []cluster.Member{{ID: "alone", Boot: 1, State: cluster.StateActive}})
	if err != nil {
		panic(err)
	}
	return v
})

// loneNode is a node without sockets and goroutines, at one instant.
func loneNode(t testing.TB) *cluster.Node {
	t.Helper()
	hands := frozen(1_700_000_000_000_000_000)
	n, err := cluster.New(cluster.Config{
		ID: "alone", Boot: 1, Clock: hands, Network: hands, Table: limiter.NewTable(limiter.TableConfig{Bytes: limiter.MinBytes}),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.SetView(loneView())
	return n
}

// Promise: with a token, nobody gets anything before it.
func TestRedisAuth(t *testing.T) {
	const token = "a-token-of-some-length"
	s := newStations(t, 1)[0]
	_, address := redisAt(t, s, RedisConfig{AuthToken: token})
	const (
		who   = "-NOAUTH Authentication required.\r\n"
		wrong = "-" + wrongPass + "\r\n"
		asked = "RL.GET k 5 60"
	)
	for _, way := range []struct{ line, want string }{
		{"AUTH " + token, "+OK\r\n"},
		{"AUTH default " + token, "+OK\r\n"},
		{"HELLO 2 AUTH default " + token, "*14\r\n"},
		{"HELLO 3 AUTH default " + token, "%7\r\n"},
	} {
		c := talkTo(t, address)
		for _, line := range []string{asked, "PING", "CLIENT ID", "INFO", "COMMAND", "SELECT 0", "NONSENSE"} {
			c.says(line, who)
		}
		c.send("PING\r\n")
		c.expect("PING without an array", who)
		c.says("HELLO 3", "-NOAUTH HELLO must be called with the client already authenticated")
		c.in.ReadString('\n')
		c.says("AUTH guess", wrong)
		c.says("AUTH admin "+token, wrong)
		c.says("HELLO 3 AUTH default guess", wrong)
		c.says("RESET", "+RESET\r\n")
		c.says(asked, who)
		c.says(way.line, way.want)
		c.conn.Close()
	}

	c := talkTo(t, address)
	c.says("AUTH "+token, "+OK\r\n")
	c.says(asked, ":5\r\n")
	c.says("AUTH guess", wrong)
	c.says(asked, ":5\r\n") // who is known stays known
	c.says("RESET", "+RESET\r\n")
	c.says(asked, who)
	c.says("QUIT", "+OK\r\n")
	c.closed("after QUIT")
}

// Promise: who is slow is cut off, who is only silent is not, for some minutes. In virtual time.
func TestRedisDeadlines(t *testing.T) {
	for _, row := range []struct {
		name  string
		token string
		sent  string
		after time.Duration // still there
		until time.Duration // gone
	}{
		{"silence", "", "", redisIdle, 2 * redisIdle},
		{"silence after a command", "", command("PING"), redisIdle, 2 * redisIdle},
		{"half a command", "", "*1\r\n$4\r\nPI", redisHurry - 1, redisHurry + 1},
		{"half a command after another", "", command("PING") + "*1\r\n", redisHurry - 1, redisHurry + 1},
		{"nobody says who it is", "token", command("PING"), redisHurry - 1, redisHurry + 1},
		{"somebody has said who it is", "token", command("AUTH", "token"), redisIdle, 2 * redisIdle},
	} {
		t.Run(row.name, func(t *testing.T) {
			node := loneNode(t)
			synctest.Test(t, func(t *testing.T) {
				d := NewRedis(RedisConfig{Node: node, AuthToken: row.token})
				client, server := net.Pipe()
				gone := make(chan struct{})
				go func() {
					newRedisConn(d, server, 1).serve()
					close(gone)
				}()
				go io.Copy(io.Discard, client)
				io.WriteString(client, row.sent)
				time.Sleep(row.after)
				synctest.Wait()
				select {
				case <-gone:
					t.Errorf("gone after %v", row.after)
				default:
				}
				time.Sleep(row.until - row.after)
				synctest.Wait()
				select {
				case <-gone:
				default:
					t.Errorf("still there after %v", row.until)
				}
				client.Close()
			})
		})
	}
}

// Deadlines move along: who says something every few minutes stays as long as they like.
func TestRedisLongTalk(t *testing.T) {
	node := loneNode(t)
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		var serving sync.WaitGroup
		serving.Go(newRedisConn(NewRedis(RedisConfig{Node: node}), server, 1).serve)
		reply := make([]byte, len("+PONG\r\n"))
		for i := range 5 {
			io.WriteString(client, command("PING"))
			if _, err := io.ReadFull(client, reply); err != nil {
				t.Fatalf("after %d times %v: %v", i, redisIdle-time.Second, err)
			}
			time.Sleep(redisIdle - time.Second)
		}
		client.Close()
		serving.Wait()
	})
}

// A command that dribbles in does not get more time for each byte.
func TestRedisDribble(t *testing.T) {
	node := loneNode(t)
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		began := time.Now()
		var dribbling sync.WaitGroup
		defer dribbling.Wait()
		dribbling.Go(func() {
			io.WriteString(client, "*1\r\n$100\r\n")
			for {
				if _, err := io.WriteString(client, "x"); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		newRedisConn(NewRedis(RedisConfig{Node: node}), server, 1).serve()
		if took := time.Since(began); took > redisHurry+time.Second {
			t.Errorf("cut off after %v of virtual time; want %v", took, redisHurry)
		}
		client.Close()
	})
}

// Promise: output is bounded. A client that sends and does not read is cut off, and little waits
// for it until then.
func TestRedisSlowReader(t *testing.T) {
	node := loneNode(t)
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe() // without a buffer: what is not read is not written
		gone := make(chan struct{})
		c := newRedisConn(NewRedis(RedisConfig{Node: node}), server, 1)
		most := 0
		go func() {
			c.serve()
			close(gone)
		}()
		sent := 0
		flood := strings.Repeat(command("COMMAND"), 1000)
		for {
			client.SetWriteDeadline(time.Now().Add(time.Minute))
			n, err := io.WriteString(client, flood)
			sent += n
			if err != nil {
				break
			}
		}
		synctest.Wait()
		<-gone
		if r := redisRounds.Get().(*redisRound); cap(r.out) > most {
			most = cap(r.out)
		}
		if sent > redisBuffer+redisFirstBuffer {
			t.Errorf("%d bytes of commands were read from a client that reads nothing", sent)
		}
		if most > 4*redisReplies {
			t.Errorf("%d bytes of replies are kept", most)
		}
		client.Close()
	})
}

func TestRedisTooManyConnections(t *testing.T) {
	s := newStations(t, 1)[0]
	d, address := redisAt(t, s, RedisConfig{})
	d.mu.Lock()
	d.most = 1
	d.mu.Unlock()
	first := talkTo(t, address)
	first.says("PING", "+PONG\r\n")
	second := talkTo(t, address)
	second.expect("the second", "-ERR max number of clients reached\r\n")
	second.closed("the second")
	first.says("QUIT", "+OK\r\n")
	first.closed("the first")
	for d.clients() > 0 {
		time.Sleep(time.Millisecond)
	}
	talkTo(t, address).says("PING", "+PONG\r\n")
}

// Who is connected when the node stops gets the replies to what has been read, and the end; a
// client that does not read does not keep it.
func TestRedisShutdown(t *testing.T) {
	s := newStations(t, 1)[0]
	d, address := redisAt(t, s, RedisConfig{})
	idle, deaf := talkTo(t, address), talkTo(t, address)
	idle.says("PING", "+PONG\r\n")
	deaf.says("PING", "+PONG\r\n")
	flooded := make(chan struct{})
	go func() {
		io.Copy(deaf.conn, io.LimitReader(repeated(command("COMMAND")), 64<<20))
		close(flooded)
	}()
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		d.Shutdown(ctx)
		close(stopped)
	}()
	idle.closed("when the node stops")
	cancel()
	<-stopped
	<-flooded
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("the door is closed and still answers")
	}
}

// repeated is text again and again.
type repeated string

func (r repeated) Read(b []byte) (n int, err error) {
	for n+len(r) <= len(b) {
		n += copy(b[n:], r)
	}
	return max(n, 1), nil
}

// A node that cannot decide says so, for each check.
func TestRedisNodeWithoutView(t *testing.T) {
	s := newStation(t, "n1", 1, testCluster)
	_, address := redisAt(t, s, RedisConfig{})
	c := talkTo(t, address)
	c.says("READY", ":0\r\n")
	want := "-ERR " + cluster.ErrNoView.Error() + "\r\n"
	c.send(command("RL.GET", "k", "1", "1") + command("CL.THROTTLE", "k", "1", "1", "1") + command("PING"))
	c.expect("checks before the node has joined", want+want+"+PONG\r\n")
}

// chunks is a connection from which bytes come in pieces.
type chunks struct {
	net.Conn // nil: nothing else is called
	in       []byte
	sizes    []byte
	out      bytes.Buffer
}

func (c *chunks) Read(b []byte) (int, error) {
	n := len(b)
	if len(c.sizes) > 0 {
		n, c.sizes = min(n, 1+int(c.sizes[0])), c.sizes[1:]
	}
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n = copy(b[:n], c.in)
	c.in = c.in[n:]
	return n, nil
}

func (c *chunks) Write(b []byte) (int, error)      { return c.out.Write(b) }
func (c *chunks) Close() error                     { return nil }
func (c *chunks) SetDeadline(time.Time) error      { return nil }
func (c *chunks) SetReadDeadline(time.Time) error  { return nil }
func (c *chunks) SetWriteDeadline(time.Time) error { return nil }

// skipReply returns what follows the first reply of b, or an error if it is none.
func skipReply(b []byte) ([]byte, error) {
	line, rest, whole := bytes.Cut(b, []byte("\r\n"))
	if !whole || len(line) == 0 {
		return nil, errors.New("no line")
	}
	count := 0
	switch line[0] {
	case '+', '-', ':', '_':
		if bytes.ContainsAny(line, "\r\n") {
			return nil, errors.New("a line in a line")
		}
		return rest, nil
	case '$', '*', '%':
		n, ok := cellInt(line[1:])
		if !ok || n < -1 {
			return nil, errors.New("no length")
		}
		count = int(n)
	default:
		return nil, errors.New("no type")
	}
	switch {
	case line[0] == '$' && count == -1:
		return rest, nil
	case line[0] == '$':
		if len(rest) < count+2 || string(rest[count:count+2]) != "\r\n" {
			return nil, errors.New("no end of a string")
		}
		return rest[count+2:], nil
	case line[0] == '%':
		count *= 2
	}
	var err error
	for range count {
		if rest, err = skipReply(rest); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// minimizeBriefly bounds how often the fuzzer tries to shorten an input that reaches new code. By
// default it tries for a minute, and mutates nothing meanwhile: a long input costs a try for each
// pair of its bytes. The flag goes before it.
func minimizeBriefly() {
	if tries := flag.Lookup("test.fuzzminimizetime"); tries.Value.String() == tries.DefValue {
		tries.Value.Set("50x")
	}
}

// fuzzedPerNode is how many inputs one node is asked. Making a node takes longer than asking it
// thousands of times; and a node that is never made anew would fill up, so that a finding could not
// be seen again.
const fuzzedPerNode = 4096

// Whatever comes, the door answers with replies and nothing else, at most one per command and one
// for the end; and it does not matter in which pieces it came.
func FuzzRedis(f *testing.F) {
	minimizeBriefly()
	for _, session := range redisSessions(f) {
		for _, x := range session.Exchanges {
			f.Add([]byte(x.Request), []byte{0, 7, 30, 200})
		}
	}
	f.Add([]byte(command("HELLO", "3", "SETNAME", "x")+command("CLIENT", "GETNAME")+command("COMMAND")+command("QUIT")+"x"), []byte{1})
	f.Add([]byte("PING\r\n*1\r\n$0\r\n\r\n*-1\r\n"), []byte{})
	var doors [2]*Redis // of a node each: both have been asked the same before
	for i := range doors {
		doors[i] = NewRedis(RedisConfig{Node: loneNode(f)})
	}
	run := 0
	f.Fuzz(func(t *testing.T, in, sizes []byte) {
		if run++; run%fuzzedPerNode == 0 {
			for i := range doors {
				doors[i] = NewRedis(RedisConfig{Node: loneNode(t)})
			}
		}
		var replies [2][]byte
		for i := range replies {
			conn := &chunks{in: bytes.Clone(in)}
			if i == 1 {
				conn.sizes = sizes
			}
			newRedisConn(doors[i], conn, 1).serve()
			replies[i] = conn.out.Bytes()
		}
		if !bytes.Equal(replies[0], replies[1]) && !bytes.Contains(bytes.ToLower(in), []byte("info")) { // INFO counts rounds
			t.Fatalf("%q at once is answered\n%q, in pieces\n%q", in, replies[0], replies[1])
		}
		commands := 0
		for rest := in; ; commands++ {
			words, n, err := resp.Parse(rest, nil)
			if err != nil || n == 0 {
				break
			}
			if rest = rest[n:]; len(words) == 0 {
				commands--
			}
		}
		n := 0
		for rest, err := replies[0], error(nil); len(rest) > 0; n++ {
			if rest, err = skipReply(rest); err != nil {
				t.Fatalf("%q is answered by %q: %v", in, replies[0], err)
			}
		}
		if n > commands+1 {
			t.Fatalf("%d replies to %d commands: %q", n, commands, replies[0])
		}
	})
}

// The door shows the certificate of the other doors, also to clients that name a protocol which
// those do not know, and lets in only who shows one of its authority, if it has one.
func TestRedisTLS(t *testing.T) {
	ours, strangers := newAuthority(t, "ours"), newAuthority(t, "strangers")
	ours.issue("door", "door")
	ours.issue("client", "client")
	strangers.issue("client", "client")
	door, err := ServerTLS(ours.path("door.pem"), ours.path("door.key"), ours.path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	s := newStations(t, 1)[0]
	d, address := redisAt(t, s, RedisConfig{TLS: door})
	for _, row := range []struct {
		name string
		from *authority
		ok   bool
	}{{"a client of ours", ours, true}, {"a stranger", strangers, false}} {
		c, err := ClientTLS(row.from.path("client.pem"), row.from.path("client.key"), ours.path("ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		c.NextProtos = []string{"redis"}
		conn, err := tls.Dial("tcp", address, c)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		talk := &redisTalk{t, conn, bufio.NewReader(conn)}
		io.WriteString(conn, command("PING"))
		if row.ok {
			talk.expect(row.name, "+PONG\r\n")
		} else if _, err := talk.in.ReadByte(); err == nil {
			t.Errorf("%s is answered", row.name)
		}
	}
	plain := talkTo(t, address)
	plain.send(command("PING"))
	if b, _ := io.ReadAll(plain.in); bytes.Contains(b, []byte("PONG")) {
		t.Errorf("a client without TLS is answered: %q", b)
	}
	for d.stats.broken.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
}

// endless is a connection from which the same commands come again and again, so many at a time.
type endless struct {
	chunks
	rounds int
	batch  []byte
}

func (c *endless) Read(b []byte) (int, error) {
	if c.rounds == 0 {
		return 0, io.EOF
	}
	c.rounds--
	return copy(b, c.batch), nil
}

func (c *endless) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkRedis is what a command costs without the sockets: read, decided, answered.
func BenchmarkRedis(b *testing.B) {
	for _, name := range []string{"CL.THROTTLE", "RL.REDUCE"} {
		for _, depth := range []int{1, 50} {
			b.Run(fmt.Sprintf("%s/pipeline=%d", name, depth), func(b *testing.B) {
				var batch []byte
				for i := range depth {
					words := []string{name, fmt.Sprintf("key:%012d", i), "15", "30", "60"}
					if name == "RL.REDUCE" {
						words = words[:4]
					}
					batch = append(batch, command(words...)...)
				}
				c := newRedisConn(NewRedis(RedisConfig{Node: loneNode(b)}), &endless{rounds: (b.N + depth - 1) / depth, batch: batch}, 1)
				b.ReportAllocs()
				b.ResetTimer()
				c.serve()
			})
		}
	}
}

func (c *chunks) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }
