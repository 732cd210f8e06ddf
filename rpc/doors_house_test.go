package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/envoy"
	"penstock/rpc/gubernator"
	"penstock/rpc/native"
	"penstock/rpc/redis"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
	"penstock/rpc/wire"
)

// This file has a node and all its doors in one process, without a socket. A request is the
// bytes that a client would send: for HTTP as net/http has read them, for gRPC a message without
// its frame, for Redis all of them.

// handClock stands still until it is moved.
type handClock struct{ now limiter.Instant }

func (h *handClock) Now() limiter.Instant                          { return h.now }
func (h *handClock) AfterFunc(time.Duration, func()) (stop func()) { return func() {} }

// house is a node with its doors.
type house struct {
	clock    *handClock
	pages    http.Handler
	calls    calls
	commands *listening
	close    func()
}

// envoyFile is the file of limits for Envoys.
const envoyFile = "domain: d\ndescriptors:\n" +
	"  - {key: user, rate_limit: {unit: minute, requests_per_unit: 6}}\n"

func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{clock: &handClock{limiter.Instant(1_600_000_000 * time.Second)}, calls: calls{}}
	node, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: h.clock, Network: rpctest.Unreached{T: t},
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20, Shards: 1}),
	})
	if err != nil {
		t.Fatal(err)
	}
	limits := cluster.Limits{}
	for _, m := range meters {
		if m.spec != nil {
			limits[m.spec.Name] = rpctest.MustLimit(*m.spec)
		}
	}
	node.SetLimits(limits)
	view, err := cluster.NewView("n1", []cluster.Member{
		{ID: "n1", Boot: 1, State: cluster.StateActive},
	})
	if err != nil {
		t.Fatal(err)
	}
	node.SetView(view)

	inlines := &door.Inlines{Node: node}
	envoys := envoy.New(node, h.clock, inlines)
	file, err := policy.ParseEnvoy("test.yaml", []byte(envoyFile))
	if err != nil {
		t.Fatal(err)
	}
	envoys.Set(file)
	machine := clock.New() // of deadlines, which are all far away
	native.Register(h.calls, native.Config{Node: node, Clock: machine, Inlines: inlines})
	gubernator.Register(h.calls, &gubernator.Door{Node: node, Clock: machine, Inlines: inlines})
	envoys.Register(h.calls, nil)
	h.pages = web.New(web.Config{
		Node: node, Inlines: inlines, Admin: true,
		Doors: map[string]http.Handler{"POST /json": envoys},
	})
	h.commands = newListening()
	server := redis.New(redis.Config{Node: node, Inlines: inlines})
	served := make(chan error)
	go func() { served <- server.Serve(h.commands) }()
	h.close = func() {
		server.Shutdown(context.Background())
		<-served
	}
	return h
}

// calls are the methods of services, by their full names.
type calls map[string]method

type method struct {
	service any
	unary   grpc.MethodHandler
	stream  grpc.StreamHandler
}

// RegisterService takes a door's methods in.
func (c calls) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, m := range desc.Methods {
		c[desc.ServiceName+"/"+m.MethodName] = method{service, m.Handler, nil}
	}
	for _, s := range desc.Streams {
		c[desc.ServiceName+"/"+s.StreamName] = method{service, nil, s.Handler}
	}
}

var codec = wire.NewCodec()

// errDecode is for what gRPC would answer in its own words.
var errDecode = errors.New("not a message")

func decoded(b []byte, v any) error {
	if codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, v) != nil {
		return errDecode
	}
	return nil
}

// call calls a method with a message, and returns the answer: a message, or a stream's first.
func (c calls) call(name string, b []byte) (out any, err error) {
	m := c[name]
	if m.stream != nil {
		s := &oneMessage{in: b}
		if err = m.stream(m.service, s); err == nil && s.sent != 1 {
			err = fmt.Errorf("%d answers to one message", s.sent)
		}
		return s.out, err
	}
	out, err = m.unary(m.service, context.Background(),
		func(v any) error { return decoded(b, v) }, nil)
	if err != nil {
		return nil, err
	}
	return encoded(out)
}

// encoded is an answer in bytes, if a door has written them, or the message.
func encoded(v any) (any, error) {
	if _, byHand := v.(wire.Call); !byHand {
		return v, nil
	}
	b, err := codec.Marshal(v)
	if err != nil {
		return nil, err
	}
	return b.Materialize(), nil
}

// oneMessage is a stream on which one message comes.
type oneMessage struct {
	in   []byte
	read bool
	sent int
	out  any
}

func (*oneMessage) SetHeader(metadata.MD) error  { return nil }
func (*oneMessage) SendHeader(metadata.MD) error { return nil }
func (*oneMessage) SetTrailer(metadata.MD)       {}
func (*oneMessage) Context() context.Context     { return context.Background() }

// SendMsg takes the answer.
func (s *oneMessage) SendMsg(v any) (err error) {
	s.sent++
	s.out, err = encoded(v)
	return err
}

// RecvMsg reads the message, and then the end.
func (s *oneMessage) RecvMsg(v any) error {
	if s.read {
		return io.EOF
	}
	s.read = true
	return decoded(s.in, v)
}

// ask asks for a page: GET with a query, or POST with a body.
func (h *house) ask(method, path string, b []byte) (status int, text []byte) {
	r := &http.Request{
		Method: method, URL: &url.URL{Path: path}, Header: http.Header{}, Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "localhost",
		RemoteAddr: "127.0.0.1:1",
	}
	if method == http.MethodGet {
		r.URL.RawQuery = string(b)
	} else {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	}
	w := &written{header: http.Header{}, status: http.StatusOK}
	h.pages.ServeHTTP(w, r)
	return w.status, w.text
}

// written is an answer of a page.
type written struct {
	header http.Header
	status int
	text   []byte
}

// Header is that of the answer.
func (w *written) Header() http.Header { return w.header }

// WriteHeader notes the status.
func (w *written) WriteHeader(status int) { w.status = status }

func (w *written) Write(b []byte) (int, error) {
	w.text = append(w.text, b...)
	return len(b), nil
}

// listening is a listener in memory, which has one connection at a time.
type listening struct {
	conns chan net.Conn
	ended chan struct{}
	open  *talking // nil: none
}

func newListening() *listening {
	return &listening{conns: make(chan net.Conn), ended: make(chan struct{})}
}

// Accept waits for a client.
func (l *listening) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *listening) Close() error {
	close(l.ended)
	return nil
}

// Addr is nowhere.
func (l *listening) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// say sends bytes, and returns what the door has written when it waits for more.
func (l *listening) say(b []byte) []byte {
	if l.open == nil {
		l.open = &talking{
			in: make(chan []byte), waits: make(chan struct{}), closed: make(chan struct{}),
		}
		l.conns <- l.open
	}
	c := l.open
	c.out = c.out[:0]
	c.in <- b
	select {
	case <-c.waits:
	case <-c.closed:
		l.open = nil
	}
	return c.out
}

// hangUp closes the connection as a client does, and waits until the door has.
func (l *listening) hangUp() {
	if l.open != nil {
		close(l.open.in)
		<-l.open.closed
		l.open = nil
	}
}

// talking is a connection in memory. Its client and the door take turns.
type talking struct {
	in            chan []byte
	left          []byte
	asked         bool
	waits, closed chan struct{}
	out           []byte
}

func (c *talking) Read(b []byte) (int, error) {
	if len(c.left) == 0 {
		if c.asked {
			c.waits <- struct{}{}
		}
		left, ok := <-c.in
		if !ok {
			c.asked = false
			return 0, io.EOF
		}
		c.left, c.asked = left, true
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

func (c *talking) Write(b []byte) (int, error) {
	c.out = append(c.out, b...)
	return len(b), nil
}

// Close is the door's.
func (c *talking) Close() error {
	close(c.closed)
	return nil
}

// LocalAddr is nowhere, and so is RemoteAddr.
func (c *talking) LocalAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// RemoteAddr is nowhere.
func (c *talking) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// SetDeadline does nothing: the client is never late.
func (c *talking) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (c *talking) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (c *talking) SetWriteDeadline(time.Time) error { return nil }
