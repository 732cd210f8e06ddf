package main

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"

	"google.golang.org/protobuf/proto"

	peerv1 "penstock/proto/penstock/peer/v1"
)

// linked are attacks by somebody that begins a link with a peer door, without TLS.
var linked = []attack{
	{
		"links",
		"nodes with drawn names and boots send messages with all fields at their extremes",
		"http",
		each(20, overLink(extremes)),
	},
	{
		"half-links",
		"500 links that announce a frame of 4 MiB, and send a byte of it each second",
		"http",
		drip(500, func(v *victim) string { return v.peer },
			string(append(linkGreeting(), 'F', 0, 0x40, 0, 0))),
	},
	{
		"link-sizes",
		"links that announce frames of drawn kinds and sizes",
		"http",
		each(20, linkSizes),
	},
}

// linkGreeting begins a link as a node that nobody knows.
func linkGreeting() []byte {
	b, _ := proto.Marshal(&peerv1.Greeting{
		Cluster: []byte("penstock"), Node: []byte(word()), Boot: rand.Uint64(), Protocol: "2",
	})
	return append([]byte("PENSTOCK"), linkMessage('G', b)...)
}

func linkMessage(kind byte, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(b))), b...)
}

// begunLink is a link, with its replies read and thrown away; nil: there is none.
func begunLink(ctx context.Context, v *victim) net.Conn {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", v.peer)
	if err != nil {
		return nil
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	conn.Write(linkGreeting())
	go io.Copy(io.Discard, conn)
	return conn
}

// overLink sends frames until the node ends the link.
func overLink(draw func(v *victim) *peerv1.Frame) func(context.Context, *victim) int {
	return func(ctx context.Context, v *victim) (sent int) {
		conn := begunLink(ctx, v)
		if conn == nil {
			return 0
		}
		defer conn.Close()
		for ; sent < 1000; sent++ {
			b, _ := proto.Marshal(draw(v))
			if _, err := conn.Write(linkMessage('F', b)); err != nil {
				break
			}
		}
		return sent
	}
}

func linkSizes(ctx context.Context, v *victim) (sent int) {
	for ; ctx.Err() == nil; sent++ {
		conn := begunLink(ctx, v)
		if conn == nil {
			return sent
		}
		size := []uint32{0, 1, 1 << 14, 1<<14 + 1, 4 << 20, 4<<20 + 1, 1<<32 - 1}[rand.IntN(7)]
		head := binary.BigEndian.AppendUint32([]byte{"GFEX\x00"[rand.IntN(5)]}, size)
		conn.Write(append(head, noise(8+rand.IntN(1<<16))...))
		conn.Close()
	}
	return sent
}
