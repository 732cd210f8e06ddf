package client

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/wire"
)

// MaxAll is the most requests of DoAll and DoTogether: a node accepts no more in a message.
const MaxAll = 1000

// DoAll is Do for 1 to MaxAll requests in one message. It is the cheapest way for many requests at
// once: a batch of log lines or a page of records. Each request is decided by itself, as if it had
// come alone. The decisions are in the order of the requests.
//
// After INVALID_ARGUMENT and NOT_FOUND, as of an unknown limit, nothing was charged but what
// Config.Leases decided here. After other errors it is unknown.
func (c *Client) DoAll(ctx context.Context, requests []Request) ([]Decision, error) {
	return c.AppendAll(ctx, nil, requests)
}

// AppendAll is DoAll for programs that reuse the memory of decisions: it appends them to out. After
// an error it returns out as it was.
func (c *Client) AppendAll(ctx context.Context, out []Decision,
	requests []Request,
) ([]Decision, error) {
	if err := sendable(requests); err != nil {
		return out, err
	}
	all := slices.Grow(out, len(requests))[:len(out)+len(requests)]
	decisions := all[len(out):]
	b := batches.Get().(*batch)
	defer b.release()
	for i := range requests {
		r := &requests[i]
		if c.leases != nil && ctx.Err() == nil && leasable(r) {
			if d := (Decision{}); c.leases.decide(r, &d) {
				decisions[i] = d
				continue
			}
		}
		b.add(i, r, c.origin, c.sequence.Add(1))
	}
	if len(b.places) == 0 {
		return all, nil
	}
	sent := c.now()
	err := c.send(ctx, b, decisions)
	for _, i := range b.places {
		if err != nil {
			var failed error
			if decisions[i], failed = c.fallback.take(ctx, err, requests[i]); failed != nil {
				return out, failed
			}
		} else if c.leases != nil && leasable(&requests[i]) {
			c.leases.heard(sent, &requests[i], &decisions[i])
		}
	}
	return all, nil
}

// DoTogether admits all of 1 to MaxAll requests, or charges none of them: a request is allowed here
// if its limit alone would have admitted it. The decisions are in the order of the requests. All
// requests are asked of the cluster: Config.OnError and Config.Leases decide on single ones only.
func (c *Client) DoTogether(ctx context.Context, requests []Request) ([]Decision, error) {
	if err := sendable(requests); err != nil {
		return nil, err
	}
	b := batches.Get().(*batch)
	defer b.release()
	for i := range requests {
		b.add(i, &requests[i], c.origin, c.sequence.Add(1))
	}
	b.message = appendNumber(b.message, 2, 1) // CheckRequest.atomic
	out := make([]Decision, len(requests))
	if err := c.send(ctx, b, out); err != nil {
		return nil, err
	}
	return out, nil
}

// sendable reports why requests cannot travel in one message.
func sendable(requests []Request) error {
	if len(requests) == 0 || len(requests) > MaxAll {
		return status.Errorf(codes.InvalidArgument, "client: %d requests; a message takes 1 to %d",
			len(requests), MaxAll)
	}
	for i := range requests {
		if err := requests[i].sendable(i); err != nil {
			return err
		}
	}
	return nil
}

// send asks b of the cluster, for decisions into out.
func (c *Client) send(ctx context.Context, b *batch, out []Decision) error {
	b.out = out
	tries := 0
	err := c.twice(ctx, func(ctx context.Context) error {
		tries++
		return c.conn.Invoke(ctx, penstockv1.RateLimiter_Check_FullMethodName, b, b,
			grpc.ForceCodecV2(batchCodec{}), grpc.StaticMethod())
	})
	if err != nil || tries > 1 {
		b.message = nil // a connection that broke may still be reading it
	}
	for _, i := range b.places {
		if err == nil {
			c.targets.heard(&out[i])
		}
	}
	return err
}

// batch is one message under way: it encodes the CheckRequest and decodes the CheckResponse.
type batch struct {
	message []byte
	places  []int      // of the requests that are in the message
	out     []Decision // of the caller
	answer  []byte
	known   names
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) release() {
	b.message, b.places, b.out = b.message[:0], b.places[:0], nil
	batches.Put(b)
}

func (b *batch) add(i int, r *Request, origin, sequence uint64) {
	b.places = append(b.places, i)
	to, at := wire.Open(b.message, 1)
	b.message = wire.Close(appendItem(to, r, origin, sequence), at)
}

var errNoMessage = errors.New("client: the node's answer is not a message of this protocol, or " +
	"is not as long as the request")

// batchCodec encodes and decodes a *batch.
type batchCodec struct{}

func (batchCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*batch).message)}, nil
}

func (batchCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b := v.(*batch)
	if n := data.Len(); cap(b.answer) < n {
		b.answer = make([]byte, n)
	} else {
		b.answer = b.answer[:n]
	}
	data.CopyTo(b.answer)
	r := streamResponse{check: b.answer}
	for _, i := range b.places {
		if !r.next(&b.out[i], &b.known) {
			return errNoMessage
		}
	}
	if more := r.next(new(Decision), &b.known); more {
		return errNoMessage
	}
	return nil
}

func (batchCodec) Name() string { return "proto" }
