package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// terminal is a screen and a keyboard in raw mode: keys come one by one, and the terminal makes no
// signals of them. close gives the terminal back as it was, and may be called at any time and more
// than once.
type terminal struct {
	in, out *os.File

	mu     sync.Mutex // guards below, and makes what is written whole
	before *term.State
	full   bool // the whole screen is in use
}

// What the whole screen needs. Lines that are too long are cut by the terminal: only it knows how
// wide a character is.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// Without a size of its own a terminal is taken for one of this size.
const (
	usualWidth  = 80
	usualHeight = 24
)

// keyboard is the terminal that somebody types at while sh.out is redrawn; nil if there is none.
func (sh shell) keyboard() *os.File {
	in, ok := sh.in.(*os.File)
	if !ok || !isTerminal(sh.out) || !term.IsTerminal(int(in.Fd())) {
		return nil
	}
	return in
}

// openTerminal puts the terminal of sh into raw mode. full takes the whole screen, and leaves what
// was there to be seen again after close.
func openTerminal(sh shell, full bool) (*terminal, error) {
	in := sh.keyboard()
	out, ok := sh.out.(*os.File)
	if in == nil || !ok {
		return nil, errors.New("standard input or standard output is not a terminal")
	}
	t := &terminal{in: in, out: out, full: full}
	return t, t.enter()
}

// enter puts the terminal into raw mode, unless it is.
func (t *terminal) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before != nil {
		return nil
	}
	before, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return err
	}
	t.before = before
	if t.full {
		io.WriteString(t.out, enterScreen)
	}
	return nil
}

func (t *terminal) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before == nil {
		return
	}
	if t.full {
		io.WriteString(t.out, leaveScreen)
	}
	_ = term.Restore(int(t.in.Fd()), t.before) // an error means that the terminal is gone
	t.before = nil
}

// size is that of the screen now.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return usualWidth, usualHeight
	}
	return width, height
}

// draw replaces what the screen shows. Each line is written over the old one, so nothing flickers.
func (t *terminal) draw(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line)
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before != nil {
		io.WriteString(t.out, b.String())
	}
}

// Write writes lines that end with "\n". In raw mode the terminal does not go back to the first
// column by itself.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(p)
	if t.before != nil {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if _, err := io.WriteString(t.out, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// keys reads keys until the terminal is gone, and closes the channel then. A read from a terminal
// cannot be ended: the goroutine lives as long as the process, so call it once.
func (t *terminal) keys() <-chan key {
	pressed := make(chan key)
	go func() {
		defer close(pressed)
		var d keyDecoder
		buf := make([]byte, 64)
		for {
			n, err := t.in.Read(buf)
			for _, k := range d.decode(buf[:n]) {
				pressed <- k
			}
			if err != nil {
				return
			}
		}
	}()
	return pressed
}

// key is a key of the keyboard: a printed character by itself, others by a number below zero.
type key rune

const (
	keyUp key = -1 - iota
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyInterrupt // ctrl-C
	keySuspend   // ctrl-Z
)

// sequences are what terminals send for the keys that print nothing, after ESC.
var sequences = map[string]key{
	"[A": keyUp, "[B": keyDown, "[5~": keyPageUp, "[6~": keyPageDown,
	"OA": keyUp, "OB": keyDown, "[H": keyHome, "[F": keyEnd, "OH": keyHome, "OF": keyEnd,
	"[1~": keyHome, "[4~": keyEnd, "[7~": keyHome, "[8~": keyEnd,
}

// longestSequence bounds what is waited for after ESC.
const longestSequence = 16

// keyDecoder makes keys of bytes. A sequence may come in pieces. Unknown ones are left out.
type keyDecoder struct {
	escaped  bool // ESC came
	sequence []byte
}

func (d *keyDecoder) decode(p []byte) (keys []key) {
	for _, c := range p {
		if k := d.next(c); k != 0 {
			keys = append(keys, k)
		}
	}
	return keys
}

// next is the key that c completes; 0: none.
func (d *keyDecoder) next(c byte) key {
	switch {
	case c == 0x1b:
		d.escaped, d.sequence = true, nil
		return 0
	case d.escaped && len(d.sequence) == 0 && c != '[' && c != 'O':
		d.escaped = false // ESC was a key by itself, or Alt was held
	case d.escaped:
		d.sequence = append(d.sequence, c)
		ended := len(d.sequence) > 1 && c >= '@' && c <= '~'
		if !ended && len(d.sequence) < longestSequence {
			return 0
		}
		k := sequences[string(d.sequence)]
		d.escaped, d.sequence = false, nil
		return k
	}
	switch {
	case c == 3:
		return keyInterrupt
	case c == 26:
		return keySuspend
	case c >= ' ' && c < 0x7f:
		return key(c)
	}
	return 0
}
