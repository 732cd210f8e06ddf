package native

import (
	"compress/gzip"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"penstock/rpc/fair"
)

// mostUnpacked is how many bytes a compressed message may have when it is unpacked. Requests with
// one check have a hundred; a larger one is to be sent as it is, and is weighed while it comes.
const mostUnpacked = 64 << 10

// mostPacked is how many messages may wait to be unpacked.
const mostPacked = 64

// unpacker unpacks messages that clients have compressed with gzip. gRPC's own way would unpack
// each to the largest request, in as many calls at a time as there are: of 20 connections with
// messages of 2 KiB a node on a busy machine took gigabytes.
type unpacker struct {
	turns   chan struct{} // has one of each message that is being unpacked
	asked   atomic.Int64  // messages that are being unpacked, or wait for their turn
	readers sync.Pool
}

func newUnpacker() *unpacker {
	return &unpacker{
		turns:   make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
		readers: sync.Pool{New: func() any { return new(gzip.Reader) }},
	}
}

// Type is the name of the encoding.
func (*unpacker) Type() string { return "gzip" }

// Do unpacks a message.
func (u *unpacker) Do(r io.Reader) ([]byte, error) {
	defer u.asked.Add(-1)
	if u.asked.Add(1) > mostPacked {
		return nil, fair.ErrOverloaded
	}
	u.turns <- struct{}{}
	defer func() { <-u.turns }()
	z := u.readers.Get().(*gzip.Reader)
	defer u.readers.Put(z)
	if err := z.Reset(r); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(z, mostUnpacked+1))
	if err == nil && len(b) > mostUnpacked {
		err = fmt.Errorf("the message has more than %d bytes when it is unpacked; "+
			"send it without compression", mostUnpacked)
	}
	return b, err
}
