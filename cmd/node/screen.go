package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// screen keeps a block of lines at the bottom of a terminal, redrawn in place. Text that is
// written through it appears above the block. The lines of the block must be narrower than the
// terminal.
type screen struct {
	mu    sync.Mutex // guards below, and makes what is written whole
	out   io.Writer
	block string
}

// through has what is written from now on go through out, which is the same terminal.
func (s *screen) through(out io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = out
}

// show replaces the block.
func (s *screen) show(block string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eraseLocked()
	s.block = block
	io.WriteString(s.out, s.block)
}

// Write prints p, which should end its line, above the block.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eraseLocked()
	n, err := s.out.Write(p)
	io.WriteString(s.out, s.block)
	return n, err
}

// eraseLocked moves the cursor to the block's first line and clears everything from there.
func (s *screen) eraseLocked() {
	if lines := strings.Count(s.block, "\n"); lines > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", lines)
	}
}
