package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
)

// Help is printed below the verb's line.
func (policyReplayVerb) Help() string {
	return "The log may be packed by gzip; - is the standard input. A terminal shows the progress."
}

// openedLog is a log as policy replay reads it: unpacked, and with its progress on a terminal.
type openedLog struct {
	io.Reader
	name  string // as errors say it
	close func()
}

// openLog opens the log at path; - is the standard input. A log that gzip has packed is unpacked,
// whatever its name is.
func openLog(path string, sh shell) (*openedLog, error) {
	file, name, size := os.Stdin, "standard input", int64(0)
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
		name = path
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	} else if err == nil && info.IsDir() {
		file.Close()
		return nil, fmt.Errorf("%s: is a directory; give one log", path)
	}
	log := &openedLog{name: name, close: func() { file.Close() }}
	var packed io.Reader = file
	if isTerminal(sh.err) {
		p := &progress{from: file, to: sh.err, size: size, now: time.Now, shown: time.Now()}
		packed, log.close = p, func() { p.clear(); file.Close() }
	}
	lines := bufio.NewReaderSize(packed, 1<<16)
	log.Reader = lines
	if magic, _ := lines.Peek(2); string(magic) == "\x1f\x8b" {
		unpacked, err := gzip.NewReader(lines)
		if err != nil {
			log.close()
			return nil, fmt.Errorf("%s: %w", name, unpacking(err))
		}
		log.Reader = unpackedLog{unpacked}
	}
	return log, nil
}

// unpackedLog is a log that gzip has packed. Its errors say so.
type unpackedLog struct{ from io.Reader }

func (l unpackedLog) Read(b []byte) (int, error) {
	n, err := l.from.Read(b)
	return n, unpacking(err)
}

// unpacking is an error of gzip with what it means.
func unpacking(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the gzip file is cut off before its end; copy it again, or unpack " +
			"what there is by gzip -dc, and replay that")
	}
	return err
}

// progress counts what is read from a log, and says so now and then in one line of a terminal.
type progress struct {
	from  io.Reader
	to    io.Writer
	size  int64 // of the whole; 0 if it is not known
	read  int64
	now   func() time.Time
	shown time.Time // when it last said something, or began

	mu   sync.Mutex // a bad line ends the reading of a log while it is read
	said bool
	over bool
}

// progressEvery is how often it does.
const progressEvery = 200 * time.Millisecond

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.read += int64(n)
	if err != nil {
		p.clear()
		return n, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.now(); now.Sub(p.shown) >= progressEvery && !p.over {
		p.shown, p.said = now, true
		if p.size > 0 {
			mib, all, percent := p.read>>20, p.size>>20, p.read*100/p.size
			fmt.Fprintf(p.to, "\r\x1b[Kreading: %d of %d MiB, %d %%", mib, all, percent)
		} else {
			fmt.Fprintf(p.to, "\r\x1b[Kreading: %d MiB", p.read>>20)
		}
	}
	return n, nil
}

// clear takes the line away, so that the answer stands alone.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over = true; p.said {
		fmt.Fprint(p.to, "\r\x1b[K")
		p.said = false
	}
}
