package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/memberlist"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"

	peerv1 "penstock/proto/penstock/peer/v1"
)

// forged are attacks by somebody that speaks as a node does: to a peer door without TLS, and with
// the gossip key.
var forged = []attack{
	{
		"forged-messages",
		"nodes with drawn names and boots send messages with every field at its extremes",
		"http",
		each(20, asNode(extremes)),
	},
	{
		"claims",
		"nodes that nobody admitted claim all partitions, again and again",
		"http",
		each(20, asNode(claims)),
	},
	{
		"relays",
		"nodes that nobody admitted send a thousand items at once to be relayed",
		"http",
		each(20, asNode(relays)),
	},
	{
		"forged-members", "drawn records of members, with the gossip key", "http",
		each(4, forgedMember),
	},
	{
		"slow-gossip",
		"500 connections to the gossip port, a byte each second",
		"http",
		drip(500, func(v *victim) string { return v.gossip }, "\xf4\x08penstock"),
	},
	{
		"full-gossip",
		"100 connections to the gossip port with 1 to 20 MiB of a message that only a key opens",
		"http",
		each(100, fullGossip),
	},
	{
		"half-bodies", "200 HTTP requests of which half of the body comes", "http",
		each(200, halfBody),
	},
	{
		"unread-http",
		"200 connections that send HTTP requests and read nothing",
		"http",
		each(200, unreadHTTP),
	},
	{
		"peer-reset",
		"20 connections to the peer door that open and reset calls",
		"http",
		each(20, func(ctx context.Context, v *victim) int { return resets(ctx, v.peer) }),
	},
	{
		"pings", "20 connections with HTTP/2 pings and settings without a pause", "grpc",
		each(20, pings),
	},
	{
		"chosen-keys", "keys of which a public hash falls into one of 64 parts", "redis",
		each(20, chosenKeys),
	},
}

// asNode opens a stream to the peer door as a node that nobody knows, and sends frames until the
// node ends it.
func asNode(draw func(v *victim) *peerv1.Frame) func(context.Context, *victim) int {
	return func(ctx context.Context, v *victim) (sent int) {
		conn, err := grpc.NewClient(
			"passthrough:///"+v.peer,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
		)
		if err != nil {
			return 0
		}
		defer conn.Close()
		ctx = metadata.AppendToOutgoingContext(
			ctx,
			"penstock-cluster-bin",
			"penstock",
			"penstock-node-bin",
			word(),
			"penstock-boot",
			fmt.Sprintf("%016x", rand.Uint64()),
			"penstock-protocol",
			"2",
		)
		stream, err := peerv1.NewPeerClient(conn).Exchange(ctx)
		if err != nil {
			return 0
		}
		go func() {
			for {
				if _, err := stream.Recv(); err != nil {
					return
				}
			}
		}()
		for range 1000 {
			if stream.Send(draw(v)) != nil {
				return sent
			}
			sent++
		}
		return sent
	}
}

func word() string { return strconv.FormatUint(rand.Uint64(), 36) }

func extremes(*victim) *peerv1.Frame {
	f := new(peerv1.Frame)
	drawInto(f.ProtoReflect(), 5)
	return f
}

// drawInto draws the fields of a message: most are at an extreme, some are absent.
func drawInto(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if rand.IntN(3) == 0 || f.Kind() == protoreflect.MessageKind && depth == 0 {
			continue
		}
		if !f.IsList() {
			m.Set(f, value(m.NewField(f), f, depth))
			continue
		}
		list := m.Mutable(f).List()
		for range []int{0, 1, 1, 2, 3, 40}[rand.IntN(6)] / (1 + (5-depth)/2) {
			list.Append(value(list.NewElement(), f, depth))
		}
	}
}

func value(fresh protoreflect.Value, f protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.MessageKind:
		drawInto(fresh.Message(), depth-1)
		return fresh
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rand.IntN(2) == 0)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text()))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(
			[]uint32{0, 1, 2, 7, 4092, 4093, 1 << 16, math.MaxUint32}[rand.IntN(8)],
		)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(
			[]uint64{0, 1, 2, rand.Uint64(), 1 << 63, math.MaxInt64, math.MaxUint64}[rand.IntN(7)],
		)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind:
		return protoreflect.ValueOfInt64(
			[]int64{0, 1, -1, 1e9, rand.Int64(), math.MaxInt64, math.MinInt64}[rand.IntN(7)],
		)
	}
	return fresh
}

func text() string {
	return strings.Repeat(string(noise(8)), []int{0, 1, 2, 32, 33, 128, 4096}[rand.IntN(7)])
}

// claims would hold everything.
func claims(v *victim) *peerv1.Frame {
	all := make([]uint32, 4093)
	for i := range all {
		all[i] = uint32(i)
	}
	return &peerv1.Frame{Asks: []*peerv1.Ask{{
		Tag: 1 + rand.Uint64N(1<<40), Hop: 1, LeftNs: int64(time.Second),
		Move: &peerv1.Move{
			From:  rand.Uint64(),
			To:    rand.Uint64(),
			Id:    []byte(word()),
			Term:  math.MaxUint64,
			Claim: all,
			Addr:  v.peer,
		},
	}}}
}

// relays are takes of keys for which another node would be asked.
func relays(*victim) *peerv1.Frame {
	ask := &peerv1.Ask{
		Tag:    1 + rand.Uint64N(1<<40),
		Hop:    1,
		LeftNs: int64(time.Second),
		Relay:  true,
		From:   rand.Uint64(),
	}
	for range 1000 {
		ask.Items = append(
			ask.Items,
			&peerv1.Item{
				Key:      []byte(word()),
				Cost:     1,
				Origin:   rand.Uint64(),
				Sequence: rand.Uint64(),
				Tell:     true,
			},
		)
	}
	limit := &peerv1.Limit{
		Name:      []byte("relayed"),
		Algorithm: 2,
		Limit:     5,
		PerNs:     int64(time.Hour),
		Burst:     5,
	}
	return &peerv1.Frame{Limits: []*peerv1.Limit{limit}, Asks: []*peerv1.Ask{ask}}
}

// member is what a forged member says of itself.
type member struct{ memberlist.Delegate }

func (member) NodeMeta(limit int) []byte {
	b := noise(1 + rand.IntN(limit))
	b[0] = byte(rand.IntN(4)) // a version that there may be
	return b
}
func (member) NotifyMsg([]byte)                {}
func (member) GetBroadcasts(int, int) [][]byte { return nil }
func (member) LocalState(bool) []byte          { return noise(4096) }
func (member) MergeRemoteState([]byte, bool)   {}

// forgedMember joins with a drawn record, and leaves.
func forgedMember(_ context.Context, v *victim) int {
	c := memberlist.DefaultLocalConfig()
	c.BindAddr, c.BindPort, c.AdvertisePort = "127.0.0.1", 0, 0
	boot := strconv.FormatUint(rand.Uint64(), 16)
	c.Name = []string{word() + "/" + boot, text() + word(), "victim/" + word()}[rand.IntN(3)]
	c.Label, c.SecretKey = "penstock", []byte(strings.Repeat("\x5a", 32))
	c.DelegateProtocolVersion, c.DelegateProtocolMin, c.DelegateProtocolMax = 1, 1, 1
	c.Delegate, c.Logger = member{}, log.New(io.Discard, "", 0)
	list, err := memberlist.Create(c)
	if err != nil {
		return 0
	}
	defer list.Shutdown()
	_, _ = list.Join([]string{v.gossip})
	if host, port, err := net.SplitHostPort(v.gossip); err == nil {
		n, _ := strconv.Atoi(port)
		to := &memberlist.Node{Name: "victim", Addr: net.ParseIP(host), Port: uint16(n)}
		for range 50 {
			_ = list.SendBestEffort(to, noise(1000))
			_ = list.SendReliable(to, noise(100_000))
		}
	}
	return 101
}

// fullGossip announces an encrypted message, and sends all of it but the end.
func fullGossip(ctx context.Context, v *victim) (sent int) {
	c := dial(ctx, "tcp", v.gossip)
	if c == nil {
		return 0
	}
	defer c.Close()
	length := []int{1, 3, 7, 20}[rand.IntN(4)] << 20
	_, _ = c.Write(binary.BigEndian.AppendUint32([]byte("\xf4\x08penstock\x0a"), uint32(length-1)))
	piece := make([]byte, 1<<18)
	for range length/len(piece) - 1 {
		if _, err := c.Write(piece); err != nil {
			return sent
		}
		sent++
	}
	_, _ = c.Read(piece[:1]) // until the node has enough
	return sent
}

func halfBody(ctx context.Context, v *victim) int {
	c := dial(ctx, "tcp", v.http)
	if c == nil {
		return 0
	}
	defer c.Close()
	_, _ = fmt.Fprintf(
		c,
		"POST /v1/check HTTP/1.1\r\nHost: localhost\r\n"+
			"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"+
			`{"items":[{"limit":"demo","key":"%s"},`,
		strings.Repeat("x", 500_000),
	)
	_, _ = io.Copy(io.Discard, c)
	return 1
}

func unreadHTTP(ctx context.Context, v *victim) (sent int) {
	c := dial(ctx, "tcp", v.http)
	if c == nil {
		return 0
	}
	defer c.Close()
	many := strings.Repeat("GET /v1/members HTTP/1.1\r\nHost: localhost\r\n\r\n", 50)
	for {
		if _, err := io.WriteString(c, many); err != nil {
			return sent
		}
		sent += 50
	}
}

func pings(ctx context.Context, v *victim) (sent int) {
	f, c := http2To(ctx, []string{v.grpc, v.peer}[rand.IntN(2)])
	if f == nil {
		return 0
	}
	defer c.Close()
	for f.WritePing(false, [8]byte{}) == nil && f.WriteSettings() == nil {
		sent += 2
	}
	return sent
}

// full says that the table of counters is full before an attack begins.
var full bool

// fill charges new keys until the node has no place for more.
func (v *victim) fill() {
	ctx, cancel := context.WithTimeout(context.Background(), fillTime)
	defer cancel()
	go each(20, newKeys)(ctx, v)
	for ctx.Err() == nil {
		if page, err := v.read("/metrics"); err == nil && tableIsFull.MatchString(page) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// tableIsFull is what the metrics say of a full table.
var tableIsFull = regexp.MustCompile(`(?m)^penstock_table_refused_total [1-9]`)

// fillTime is how long a table may take to be full.
const fillTime = 30 * time.Second

// chosenKeys are charged under a limit that remembers them for long.
func chosenKeys(ctx context.Context, v *victim) int {
	var b strings.Builder
	for n := 0; n < 100; {
		if key := word(); xxhash.Sum64String(key)>>58 == 0 {
			b.WriteString(throttle(key, 3600))
			n++
		}
	}
	c := dial(ctx, "tcp", v.redis)
	if c == nil {
		return 0
	}
	defer c.Close()
	_, _ = io.WriteString(c, b.String())
	_, _ = io.ReadAtLeast(c, make([]byte, 4<<10), 2000)
	return 100
}
