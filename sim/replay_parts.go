package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// A log is read by one goroutine, which cuts it into parts of whole lines; several goroutines parse
// them, and what they found is put together in the order of the log. So a line's number, and which
// bad line is the first, do not depend on how many there are.

// partSize is how many bytes a part has, or somewhat less. It is more than maxLogLine.
const partSize = 256 << 10

// logPart is some lines of a log.
type logPart struct {
	text  []byte
	first int   // number of its first line
	err   error // the log ends behind it, but not with its end

	inPart
	done chan struct{} // closed when it is parsed
}

// inPart is what a part has in it.
type inPart struct {
	requests []logged
	skipped  int
	bad      int // number of the line that ends it; 0: none does
	fault    error
}

// parse reads lines of which the first has this number. Of more requests than room, the line that
// has one too many ends them.
func (r *logReader) parse(text []byte, first, room int) (p inPart) {
	p.requests = make([]logged, 0, len(text)/128)
	for n := first; len(text) > 0; n++ {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		long := len(line) >= r.longest
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var l logged
		fault := errLongLine
		if !long {
			l, fault = r.line(line)
		}
		switch {
		case errors.Is(fault, errPassedOver):
		case fault != nil && !r.skip:
			p.bad, p.fault = n, fault
			return p
		case fault != nil:
			p.skipped++
		case len(p.requests) == room:
			p.bad, p.fault = n, fmt.Errorf(
				"is one request too many; %d are accepted: replay a part of the log", maxLogged)
			return p
		default:
			p.requests = append(p.requests, l)
		}
	}
	return p
}

// another parses beside r.
func (r *logReader) another() *logReader {
	own := *r
	own.format, own.known, own.buf = r.format.another(), make(map[string]string), nil
	return &own
}

// parseParts parses a whole log, in its order.
func (r *logReader) parseParts(
	file string, from io.Reader, size, parsers int,
) (all []logged, skipped int, err error) {
	cut := logCutter{from: from, size: size, longest: r.longest, line: 1}
	parts, toParse := make(chan *logPart, 2*parsers), make(chan *logPart, 2*parsers)
	quit := make(chan struct{})
	go func() {
		defer close(parts)
		defer close(toParse)
		for more := true; more; {
			var part *logPart
			part, more = cut.next()
			select {
			case parts <- part:
				toParse <- part
			case <-quit:
				return
			}
		}
	}()
	var parsing sync.WaitGroup
	for range parsers {
		parsing.Go(func() {
			own := r.another()
			for part := range toParse {
				part.inPart = own.parse(part.text, part.first, maxLogged)
				close(part.done)
			}
		})
	}
	all, skipped, err = r.gather(file, parts, maxLogged)
	close(quit)
	if err == nil { // else the log may go on for as long as it likes
		parsing.Wait()
	}
	return all, skipped, err
}

// gather puts together what was found in the parts, of room requests at most.
func (r *logReader) gather(
	file string, parts <-chan *logPart, room int,
) (all []logged, skipped int, err error) {
	var found [][]logged
	for part := range parts {
		<-part.done
		p := part.inPart
		if len(p.requests) > room {
			p = r.another().parse(part.text, part.first, room)
		}
		switch {
		case p.fault != nil:
			return nil, 0, &LogError{file, p.bad, p.fault.Error()}
		case part.err != nil:
			return nil, 0, fmt.Errorf("%s: %w", file, part.err)
		}
		found = append(found, p.requests)
		room -= len(p.requests)
		skipped += p.skipped
	}
	return slices.Concat(found...), skipped, nil
}

// logCutter cuts a log into parts.
type logCutter struct {
	from    io.Reader
	size    int // of a part; more than longest
	longest int
	line    int    // number of the next one
	begun   []byte // of a line that is not whole yet
}

// next is the next part; without more, it is the last one.
func (c *logCutter) next() (part *logPart, more bool) {
	part = &logPart{first: c.line, done: make(chan struct{})}
	text := append(make([]byte, 0, c.size), c.begun...)
	for {
		n, err := c.from.Read(text[len(text):c.size])
		text = text[:len(text)+n]
		if err == nil && len(text) < c.size {
			continue
		}
		end := bytes.LastIndexByte(text, '\n') + 1
		switch {
		case errors.Is(err, io.EOF):
			part.text = text // its last line may lack an end
			return part, false
		case err != nil:
			part.text, part.err = text[:end], err
			return part, false
		case end > 0:
			part.text, c.begun = text[:end], text[end:]
			c.line += bytes.Count(part.text, []byte{'\n'})
			return part, true
		}
		text = text[:c.longest+1] // a line that is too long stays so without the rest of it
	}
}
