package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
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
	"penstock/rpc"
	"penstock/rpc/resp"
	"penstock/rpc/rpctest"
)

// frozen is a clock that stands still.
type frozen limiter.Instant

func (f frozen) Now() limiter.Instant                        { return limiter.Instant(f) }
func (frozen) AfterFunc(time.Duration, func()) (stop func()) { return func() {} }
func (frozen) Call([]cluster.Call)                           { panic("there is nobody to call") }
func (frozen) Wait(limiter.Instant) {
	panic("there is nothing to wait for")
}

// loneView has a node called alone. Making one takes longer than all the rest of such a node.
var loneView = sync.OnceValue(func() *cluster.View {
	v, err := cluster.NewView("alone", []cluster.Member{{
		ID: "alone", Boot: 1,
		State: cluster.StateActive,
	}})
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
		ID: "alone", Boot: 1, Clock: hands, Network: hands,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: limiter.MinBytes}),
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
	s := rpctest.Joined(t, 1)[0]
	_, address := redisAt(t, s, Config{AuthToken: token})
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
		c := rpctest.TalkTo(t, address)
		for _, line := range []string{
			asked, "PING", "CLIENT ID", "INFO", "COMMAND",
			"SELECT 0", "NONSENSE",
		} {
			c.Says(line, who)
		}
		c.Send("PING\r\n")
		c.Expect("PING without an array", who)
		c.Says("HELLO 3", "-NOAUTH HELLO must be called with the client already authenticated")
		c.In.ReadString('\n')
		c.Says("AUTH guess", wrong)
		c.Says("AUTH admin "+token, wrong)
		c.Says("HELLO 3 AUTH default guess", wrong)
		c.Says("HELLO 3 AUTH default "+token+" NONSENSE", "-ERR Syntax error in HELLO option")
		c.In.ReadString('\n')
		c.Says(asked, who) // what is refused changes nothing
		c.Says("RESET", "+RESET\r\n")
		c.Says(asked, who)
		c.Says(way.line, way.want)
		c.Conn.Close()
	}

	c := rpctest.TalkTo(t, address)
	c.Says("AUTH "+token, "+OK\r\n")
	c.Says(asked, ":5\r\n")
	c.Says("AUTH guess", wrong)
	c.Says(asked, ":5\r\n") // a known client stays known
	c.Says("RESET", "+RESET\r\n")
	c.Says(asked, who)
	c.Says("QUIT", "+OK\r\n")
	c.Closed("after QUIT")
}

// Promise: a slow client is cut off, a silent one is not, for some minutes. In virtual time.
func TestRedisDeadlines(t *testing.T) {
	for _, row := range []struct {
		name  string
		token string
		sent  string
		after time.Duration // still there
		until time.Duration // gone
	}{
		{"silence", "", "", idleTimeout, 2 * idleTimeout},
		{"silence after a command", "", rpctest.Command("PING"), idleTimeout, 2 * idleTimeout},
		{"half a command", "", "*1\r\n$4\r\nPI", hurry - 1, hurry + 1},
		{
			"half a command after another", "", rpctest.Command("PING") + "*1\r\n",
			hurry - 1, hurry + 1,
		},
		{"nobody says who it is", "token", rpctest.Command("PING"), hurry - 1, hurry + 1},
		{
			"somebody has said who it is", "token", rpctest.Command("AUTH", "token"), idleTimeout,
			2 * idleTimeout,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			node := loneNode(t)
			synctest.Test(t, func(t *testing.T) {
				d := New(Config{Node: node, AuthToken: row.token})
				client, server := net.Pipe()
				gone := make(chan struct{})
				go func() {
					newConnection(d, server, 1).serve()
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

// Deadlines move along: a client that says something every few minutes stays.
func TestRedisLongTalk(t *testing.T) {
	node := loneNode(t)
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		var serving sync.WaitGroup
		serving.Go(newConnection(New(Config{Node: node}), server, 1).serve)
		reply := make([]byte, len("+PONG\r\n"))
		for i := range 5 {
			io.WriteString(client, rpctest.Command("PING"))
			if _, err := io.ReadFull(client, reply); err != nil {
				t.Fatalf("after %d times %v: %v", i, idleTimeout-time.Second, err)
			}
			time.Sleep(idleTimeout - time.Second)
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
		newConnection(New(Config{Node: node}), server, 1).serve()
		if took := time.Since(began); took > hurry+time.Second {
			t.Errorf("cut off after %v of virtual time; want %v", took, hurry)
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
		c := newConnection(New(Config{Node: node}), server, 1)
		most := 0
		go func() {
			c.serve()
			close(gone)
		}()
		sent := 0
		flood := strings.Repeat(rpctest.Command("COMMAND"), 1000)
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
		if r := rounds.Get().(*round); cap(r.out) > most {
			most = cap(r.out)
		}
		if sent > mostBuffer+firstBuffer {
			t.Errorf("%d bytes of commands were read from a client that reads nothing", sent)
		}
		if most > 4*repliesGathered {
			t.Errorf("%d bytes of replies are kept", most)
		}
		client.Close()
	})
}

// Promise: replies that clients do not read take a bounded memory over all connections, and a
// client that reads its replies is not the one to pay for it.
func TestUnreadRepliesAreBounded(t *testing.T) {
	node := loneNode(t)
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{Node: node})
		begin := time.Now()
		rounds := 2 * mostUnread / roundSize // each of these waits for its client
		talk := func() net.Conn {
			client, server := net.Pipe() // without a buffer: what is not read is not written
			t.Cleanup(func() { client.Close() })
			go newConnection(d, server, 1).serve()
			return client
		}
		honest := talk()
		for range rounds {
			client := talk()
			if _, err := io.WriteString(client, rpctest.Command("PING")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			io.WriteString(honest, rpctest.Command("PING"))
			reply := make([]byte, len("+PONG\r\n"))
			if _, err := io.ReadFull(honest, reply); err != nil || string(reply) != "+PONG\r\n" {
				t.Fatalf("the client that reads: %q, %v", reply, err)
			}
		}
		if time.Since(begin) > 0 {
			t.Fatal("a deadline has closed connections")
		}
		d.unread.mu.Lock()
		defer d.unread.mu.Unlock()
		if waiting := int64(len(d.unread.writers)); waiting*roundSize > mostUnread ||
			waiting < rounds/4 {
			t.Errorf("%d rounds of %d bytes wait to be read", waiting, roundSize)
		}
	})
}

func TestRedisTooManyConnections(t *testing.T) {
	s := rpctest.Joined(t, 1)[0]
	d, address := redisAt(t, s, Config{})
	d.mu.Lock()
	d.most = 1
	d.mu.Unlock()
	first := rpctest.TalkTo(t, address)
	first.Says("PING", "+PONG\r\n")
	second := rpctest.TalkTo(t, address)
	second.Expect("the second", "-ERR max number of clients reached\r\n")
	second.Closed("the second")
	first.Says("QUIT", "+OK\r\n")
	first.Closed("the first")
	for d.clients() > 0 {
		time.Sleep(time.Millisecond)
	}
	rpctest.TalkTo(t, address).Says("PING", "+PONG\r\n")
}

// A client that is connected when the node stops gets the replies to what has been read, and the
// end; a client that does not read does not keep it.
func TestRedisShutdown(t *testing.T) {
	s := rpctest.Joined(t, 1)[0]
	d, address := redisAt(t, s, Config{})
	idle, deaf := rpctest.TalkTo(t, address), rpctest.TalkTo(t, address)
	idle.Says("PING", "+PONG\r\n")
	deaf.Says("PING", "+PONG\r\n")
	flooded := make(chan struct{})
	go func() {
		io.Copy(deaf.Conn, io.LimitReader(repeated(rpctest.Command("COMMAND")), 64<<20))
		close(flooded)
	}()
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		d.Shutdown(ctx)
		close(stopped)
	}()
	idle.Closed("when the node stops")
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
	hands := frozen(1_700_000_000_000_000_000)
	s, err := cluster.New(cluster.Config{
		ID: "alone", Boot: 1, Clock: hands, Network: hands,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: limiter.MinBytes}),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, address := redisAt(t, s, Config{})
	c := rpctest.TalkTo(t, address)
	c.Says("READY", ":0\r\n")
	want := "-ERR " + cluster.ErrNoView.Error() + "\r\n"
	c.Send(rpctest.Command("RL.GET", "k", "1", "1") + rpctest.Command("CL.THROTTLE", "k", "1", "1",
		"1") + rpctest.Command("PING"))
	c.Expect("checks before the node has joined", want+want+"+PONG\r\n")
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

// fuzzedPerNode is how many inputs one node is asked. Making a node takes longer than asking it
// thousands of times; and a node that is never made anew would fill up, so that a finding could not
// be seen again.
const fuzzedPerNode = 4096

// Whatever comes, the door answers with replies and nothing else, at most one per command and one
// for the end; and it does not matter in which pieces it came.
func FuzzRedis(f *testing.F) {
	rpctest.MinimizeBriefly()
	for _, session := range redisSessions(f) {
		for _, x := range session.Exchanges {
			f.Add([]byte(x.Request), []byte{0, 7, 30, 200})
		}
	}
	f.Add([]byte(rpctest.Command("HELLO", "3", "SETNAME", "x")+rpctest.Command("CLIENT",
		"GETNAME")+rpctest.Command("COMMAND")+rpctest.Command("QUIT")+"x"), []byte{1})
	f.Add([]byte("PING\r\n*1\r\n$0\r\n\r\n*-1\r\n"), []byte{})
	var doors [2]*Server // of a node each: both have been asked the same before
	for i := range doors {
		doors[i] = New(Config{Node: loneNode(f)})
	}
	run := 0
	f.Fuzz(func(t *testing.T, in, sizes []byte) {
		if run++; run%fuzzedPerNode == 0 {
			for i := range doors {
				doors[i] = New(Config{Node: loneNode(t)})
			}
		}
		var replies [2][]byte
		for i := range replies {
			conn := &chunks{in: bytes.Clone(in)}
			if i == 1 {
				conn.sizes = sizes
			}
			newConnection(doors[i], conn, 1).serve()
			replies[i] = conn.out.Bytes()
		}
		// INFO counts rounds
		if !bytes.Equal(replies[0], replies[1]) && !bytes.Contains(bytes.ToLower(in),
			[]byte("info")) {
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
// those do not know, and lets in only clients that show one of its authority, if it has one.
func TestRedisTLS(t *testing.T) {
	ours, strangers := rpctest.NewAuthority(t, "ours"), rpctest.NewAuthority(t, "strangers")
	ours.Issue("door", "door")
	ours.Issue("client", "client")
	strangers.Issue("client", "client")
	door, err := rpc.TLSFiles{
		Cert: ours.Path("door.pem"), Key: ours.Path("door.key"), CA: ours.Path("ca.pem"),
	}.Server()
	if err != nil {
		t.Fatal(err)
	}
	s := rpctest.Joined(t, 1)[0]
	d, address := redisAt(t, s, Config{TLS: door})
	for _, row := range []struct {
		name string
		from *rpctest.Authority
		ok   bool
	}{{"a client of ours", ours, true}, {"a stranger", strangers, false}} {
		c, err := rpc.ClientTLS(row.from.Path("client.pem"), row.from.Path("client.key"),
			ours.Path("ca.pem"))
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
		talk := rpctest.TalkOver(t, conn)
		io.WriteString(conn, rpctest.Command("PING"))
		if row.ok {
			talk.Expect(row.name, "+PONG\r\n")
		} else if _, err := talk.In.ReadByte(); err == nil {
			t.Errorf("%s is answered", row.name)
		}
	}
	plain := rpctest.TalkTo(t, address)
	plain.Send(rpctest.Command("PING"))
	if b, _ := io.ReadAll(plain.In); bytes.Contains(b, []byte("PONG")) {
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
					batch = append(batch, rpctest.Command(words...)...)
				}
				c := newConnection(New(Config{Node: loneNode(b)}),
					&endless{rounds: (b.N + depth - 1) / depth, batch: batch}, 1)
				b.ReportAllocs()
				b.ResetTimer()
				c.serve()
			})
		}
	}
}

func (c *chunks) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }
