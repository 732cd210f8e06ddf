package peer

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/clock"
	"penstock/rpc/door"
)

// A snapshot is what a table and its book know, on a disk. It begins with a line that says what it
// is, and goes on with records:
//
//	length of the body, 4 bytes | CRC-32C of the body, 4 |
//	body: wall clock, 8, in ns since the Unix epoch | frame
//
// Integers are little endian. A frame is one of proto/penstock/peer/v1/peer.proto, and its only ask
// carries copies of entries or holds, as nodes send them to each other; their instants are relative
// to that wall clock. So what a release reads from another node it reads from a file, and what it
// does not know it skips. The first records have neither, they are the head: each names a member,
// by its sign of life, or has the secret of the cluster, or says of which partitions counters were
// forgotten. Whether the file is partial shows elsewhere: a process that ends could not say so.
// The last record's frame is empty: without it the file is cut off.
const (
	snapshotTitle  = "penstock counters 1\n"
	snapshotFamily = "penstock counters "
	recordHead     = 8
	recordStamp    = 8
	// recordEntries and recordBytes are from when on a record takes no more: so a reader, too, has
	// one at a time in memory.
	recordEntries = 1000
	recordBytes   = 1 << 19
	maxRecord     = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrForeign is wrapped by ReadSnapshot's error if what it reads was never written by this program,
// or by a release that writes another form. Then the file is somebody's, and not to be written
// over.
var ErrForeign = errors.New("this is not a file of counters that this release can read")

// WriteSnapshot writes all that table and book know and that outlives a process to w, part by part:
// nobody waits for w, which may take its time. Holds come before entries: of one that is settled
// meanwhile the charge may be in the file too, but never neither. It returns the number of entries
// and holds.
func WriteSnapshot(w io.Writer, head *cluster.FileHead, table *limiter.Table,
	book *limiter.Ledger, clock *clock.Clock,
) (entries int, err error) {
	out := bufio.NewWriterSize(w, 1<<16)
	if _, err := out.WriteString(snapshotTitle); err != nil {
		return 0, err
	}
	var frame frameWriter
	var beginning [recordHead + recordStamp]byte
	record := func(wall time.Time, m *cluster.Move) error {
		frame.reset()
		if m != nil {
			frame.add(0, &cluster.Ask{Move: m}, 0)
		}
		stamp := binary.LittleEndian.AppendUint64(beginning[:recordHead],
			uint64(wall.UnixNano()))[recordHead:]
		binary.LittleEndian.PutUint32(beginning[:], uint32(recordStamp+len(frame.buf)))
		binary.LittleEndian.PutUint32(beginning[4:],
			crc32.Update(crc32.Checksum(stamp, castagnoli), castagnoli, frame.buf))
		_, err1 := out.Write(beginning[:])
		_, err2 := out.Write(frame.buf)
		return errors.Join(err1, err2)
	}
	wall, now := time.Now(), clock.Now()
	for _, m := range headRecords(head) {
		if err := record(wall, &m); err != nil {
			return 0, err
		}
	}
	var holds []cluster.HoldCopy
	book.Each(func(uint64) bool { return true }, func(_ uint64, h limiter.Hold) {
		holds = append(holds, cluster.HoldCopy{Hold: h, Left: time.Duration(h.Deadline - now)})
	})
	entries = len(holds)
	for some := range slices.Chunk(holds, recordEntries) {
		if err := record(wall, &cluster.Move{Copying: cluster.Copying{Holds: some}}); err != nil {
			return 0, err
		}
	}
	for i := range table.Parts() {
		wall = time.Now()
		list := table.Save(clock.Now(), i)
		entries += len(list)
		for len(list) > 0 {
			n, size := 0, 0
			for ; n < min(len(list), recordEntries) && size < recordBytes; n++ {
				size += len(list[n].Key) + len(list[n].State)
			}
			if err := record(wall,
				&cluster.Move{Copying: cluster.Copying{Entries: list[:n]}}); err != nil {
				return entries, err
			}
			list = list[n:]
		}
	}
	return entries, errors.Join(record(time.Now(), nil), out.Flush())
}

// headRecords are the first records.
func headRecords(h *cluster.FileHead) (records []cluster.Move) {
	for _, id := range h.Others {
		records = append(records, cluster.Move{ID: id})
	}
	if h.Secret != 0 {
		records = append(records, cluster.Move{Secret: h.Secret})
	}
	for _, l := range h.Lack {
		records = append(records, cluster.Move{Copying: cluster.Copying{Lack: l}})
	}
	return records
}

// AddToHead adds what a record of a snapshot says to the head that is read.
func AddToHead(h *cluster.FileHead, m *cluster.Move) {
	if m.ID != "" {
		h.Others = append(h.Others, strings.Clone(m.ID))
	}
	h.Secret = cmp.Or(m.Secret, h.Secret)
	if len(m.Lack.Of) > 0 {
		h.Lack = append(h.Lack, cluster.Lack{Of: slices.Clone(m.Lack.Of), Age: m.Lack.Age})
	}
}

// ReadSnapshot hands what r has to take, record by record, with the wall clock's time at which it
// was so: Entries, Holds, or a part of the head (AddToHead). What take gets is good until it
// returns. An error says from where on r cannot be read; what was handed over before that is in
// order. It wraps ErrForeign if nothing of r is for this program.
func ReadSnapshot(r io.Reader, take func(written time.Time, m *cluster.Move)) error {
	in := bufio.NewReaderSize(r, 1<<16)
	title := make([]byte, len(snapshotTitle))
	if n, err := io.ReadFull(in, title); string(title[:n]) != snapshotTitle {
		if strings.HasPrefix(snapshotTitle, string(title[:n])) {
			return fmt.Errorf("it ends at byte %d, in its first line: %w", n, err)
		}
		if form, found := bytes.CutPrefix(title[:n], []byte(snapshotFamily)); found {
			return fmt.Errorf("%w: it has form %.20q, and this release knows 1", ErrForeign,
				bytes.TrimSpace(form))
		}
		return fmt.Errorf("%w: it begins with %.20q", ErrForeign, title[:n])
	}
	frames := frameReader{known: new(door.LimitCache)}
	at := int64(len(snapshotTitle))
	var body []byte
	for {
		var head [recordHead]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return fmt.Errorf("it ends at byte %d, in the middle: %w", at, err)
		}
		size := binary.LittleEndian.Uint32(head[:])
		if size < recordStamp || size > maxRecord {
			return fmt.Errorf("it is damaged at byte %d: a record cannot have %d bytes", at, size)
		}
		if cap(body) < int(size) {
			body = make([]byte, size)
		}
		body = body[:size]
		if _, err := io.ReadFull(in, body); err != nil {
			return fmt.Errorf("it ends in the middle of the record at byte %d: %w", at, err)
		}
		if sum := crc32.Checksum(body, castagnoli); sum != binary.LittleEndian.Uint32(head[4:]) {
			return fmt.Errorf("it is damaged: the checksum of the record at byte %d is %08x and "+
				"not what it should be", at, sum)
		}
		if size == recordStamp {
			return nil
		}
		written := time.Unix(0, int64(binary.LittleEndian.Uint64(body)))
		var broken error
		err := frames.read(body[recordStamp:], 0, func(_ uint64, a *cluster.Ask, err error) {
			if err == nil && a.Move != nil {
				take(written, a.Move)
			}
			broken = errors.Join(broken, err)
		})
		if err = errors.Join(err, broken); err != nil {
			return fmt.Errorf("the record at byte %d %w", at, err)
		}
		at += recordHead + int64(size)
	}
}
