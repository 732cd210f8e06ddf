package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// glass renders what a program writes to a terminal: the part of ECMA-48 and of xterm that this
// program uses. Whatever else it meets is a failure that it shows as text.
type glass struct {
	width, height int
	cells         [][]rune
	saved         [][]rune // of the first screen, while the other one is shown
	x, y          int
	rest          []byte // the beginning of a sequence, or of a character

	other, hidden, unwrapped bool
	colours                  []string // that were set since the screen was last begun at its top
	paint                    string   // in force
}

func newGlass(width, height int) *glass {
	g := &glass{}
	g.resize(width, height)
	return g
}

func (g *glass) resize(width, height int) {
	g.width, g.height = width, height
	cells := make([][]rune, height)
	for y := range cells {
		cells[y] = []rune(strings.Repeat(" ", width))
		if y < len(g.cells) {
			copy(cells[y], g.cells[y])
		}
	}
	g.cells = cells
	g.x, g.y = min(g.x, width-1), min(g.y, height-1)
}

func (g *glass) text() string {
	var lines []string
	for _, row := range g.cells {
		lines = append(lines, strings.TrimRight(string(row), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func (g *glass) write(p []byte) {
	g.rest = append(g.rest, p...)
	for len(g.rest) > 0 {
		if g.rest[0] == 0x1b {
			end := slices.IndexFunc(g.rest, func(r byte) bool {
				return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
			})
			if end < 0 {
				return
			}
			g.sequence(string(g.rest[1 : end+1]))
			g.rest = g.rest[end+1:]
			continue
		}
		size := 1
		for first := g.rest[0]; first >= 0xc0 && first&(0x80>>size) != 0; {
			size++
		}
		if len(g.rest) < size {
			return
		}
		g.put([]rune(string(g.rest[:size]))[0])
		g.rest = g.rest[size:]
	}
}

func (g *glass) put(r rune) {
	switch r {
	case '\r':
		g.x = 0
		return
	case '\n':
		g.down()
		return
	}
	if g.x >= g.width {
		if g.unwrapped {
			g.x = g.width - 1
		} else {
			g.x = 0
			g.down()
		}
	}
	g.cells[g.y][g.x] = r
	g.x++
}

func (g *glass) down() {
	if g.y++; g.y < g.height {
		return
	}
	g.y = g.height - 1
	g.cells = append(g.cells[1:], []rune(strings.Repeat(" ", g.width)))
}

func (g *glass) clear(y, x int) {
	for ; x < g.width; x++ {
		g.cells[y][x] = ' '
	}
}

func (g *glass) sequence(s string) {
	n, err := strconv.Atoi(strings.Trim(s, "[ABCDHJKm"))
	switch {
	case s == "[H":
		g.x, g.y, g.colours = 0, 0, nil
	case s == "[K":
		g.clear(g.y, g.x)
	case s == "[J":
		g.clear(g.y, g.x)
		for y := g.y + 1; y < g.height; y++ {
			g.clear(y, 0)
		}
	case strings.HasSuffix(s, "A") && err == nil:
		g.y = max(0, g.y-n)
	case strings.HasSuffix(s, "m") && err == nil:
		if g.paint = s; n != 0 {
			g.colours = append(g.colours, strconv.Itoa(n))
		}
	case s == "[?1049h":
		g.other, g.saved = true, g.cells
		g.cells = nil
		g.resize(g.width, g.height)
		g.x, g.y = 0, 0
	case s == "[?1049l":
		g.other, g.cells = false, g.saved
		g.resize(g.width, g.height)
	case s == "[?25l", s == "[?25h":
		g.hidden = s == "[?25l"
	case s == "[?7l", s == "[?7h":
		g.unwrapped = s == "[?7l"
	default:
		for _, r := range "<ESC " + s + ">" {
			g.put(r)
		}
	}
}

// The terminal of the tests shows what a real one would.
func TestGlass(t *testing.T) {
	for _, c := range []struct{ written, want string }{
		{"ab\r\ncd", "ab\ncd"},
		{"ab\ncd", "ab\n  cd"},
		{"abcdefgh", "abcdef\ngh"},
		{"\x1b[?7labcdefgh", "abcdeh"},
		{"1\r\n2\r\n3\r\n4", "2\n3\n4"},
		{"one\r\ntwo\r\n\x1b[2A\x1b[Jx", "x"},
		{"one\r\ntwo\x1b[Hé\x1b[K", "é\ntwo"},
		{"one\x1b[?1049htwo\x1b[?1049l", "one"},
		{"\x1b[31mred\x1b[0m", "red"},
		{"\x1b[9q", "<ESC [\n9q>"},
	} {
		g := newGlass(6, 3)
		for i := range len(c.written) {
			g.write([]byte{c.written[i]}) // in the smallest pieces
		}
		if got := g.text(); got != c.want {
			t.Errorf("%q shows %q; want %q", c.written, got, c.want)
		}
	}
}
