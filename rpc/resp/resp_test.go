package resp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func words(command [][]byte) (s []string) {
	for _, w := range command {
		s = append(s, string(w))
	}
	return s
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
		n    int
	}{
		{"*1\r\n$4\r\nPING\r\n", []string{"PING"}, 14},
		{"*1\r\n$4\r\nPING\r\n*1\r\n", []string{"PING"}, 14},
		{"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", []string{"ECHO", ""}, 20},
		{"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n*1\r\n", []string{"ECHO", "\r\n*1"}, 24},
		{"*01\r\n$0000000004\r\nPING\r\n", []string{"PING"}, 24},
		{"\r\n\r\n*1\r\n", nil, 4},
		{"ping\r\n", []string{"ping"}, 6},
		{"QUIT\r\n", []string{"QUIT"}, 6},
	} {
		got, n, err := Parse([]byte(c.in), nil)
		if err != nil || n != c.n || !slices.Equal(words(got), c.want) {
			t.Errorf("%q: %q, %d bytes, %v; want %q, %d bytes", c.in, got, n, err, c.want, c.n)
		}
	}
}

// Promise: hostile input: a clear error, bounded memory. What is too long is refused when it is
// declared.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		in   string
		want error
	}{
		{"*0\r\n", errArray},
		{"*-1\r\n", errArray},
		{"*65\r\n", errArray},
		{"*x", errArray},
		{"*+1\r\n", errArray},
		{"*1\n", errArray},
		{"*1\rx", errArray},
		{"*99999999999", errArray}, // 11 digits
		{"*\r\n", errArray},
		{"PUT / HTTP/1.1\r\n", errArray},
		{"PINGS", errArray},
		{"PING x\r\n", errArray},
		{"RL.GET k 1 1\r\n", errArray},
		{"$4\r\nPING\r\n", errArray},
		{"\n", errArray},
		{"*1\r\nx", errBulk},
		{"*1\r\n:1\r\n", errBulk},
		{"*1\r\n*1\r\n", errBulk}, // an array in an array
		{"*1\r\n$-1\r\n", errBulk},
		{"*1\r\n$16384\r\n", errBulk},
		{"*1\r\n$9999999999\r\n", errBulk},
		{"*1\r\n$99999999999", errBulk},
		// both together are too long
		{"*3\r\n$8192\r\n" + strings.Repeat("x", 8192) + "\r\n$8192\r\n", errBulk},
		{"*1\r\n$4\r\nPINGxx", errEnding},
		{"*1\r\n$4\r\nPING\rx", errEnding},
		{"POST / HTTP/1.1\r\n", ErrHTTP},
		{"post ", ErrHTTP},
		{"Host: example.com\r\n", ErrHTTP},
	} {
		if got, n, err := Parse([]byte(c.in), nil); !errors.Is(err, c.want) {
			t.Errorf("%.60q: %q, %d bytes, %v; want %v", c.in, got, n, err, c.want)
		}
	}
}

// A command is the same however it arrives: until it is whole, more is asked for.
func TestParseInPieces(t *testing.T) {
	largest := "*64\r\n" + strings.Repeat("$1\r\nx\r\n", 63)
	rest := MaxCommand - len(largest) - len("$15929\r\n\r\n")
	largest += fmt.Sprintf("$%d\r\n%s\r\n", rest, strings.Repeat("y", rest))
	for _, whole := range []string{"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n", "PING\r\n", largest} {
		for i := range whole {
			if got, n, err := Parse([]byte(whole[:i]), nil); n != 0 || err != nil || len(got) != 0 {
				t.Fatalf("%.60q, %d bytes of %d: %q, %d bytes, %v; want to hear that more is "+
					"needed", whole, i, len(whole), got, n, err)
			}
		}
		if _, n, err := Parse([]byte(whole), nil); n != len(whole) || err != nil {
			t.Errorf("%.60q: %d bytes of %d, %v", whole, n, len(whole), err)
		}
	}
	if len(largest) != MaxCommand {
		t.Errorf("the largest command tried has %d bytes, want %d", len(largest), MaxCommand)
	}
}

func TestAppend(t *testing.T) {
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{AppendInt(nil, -1<<63), ":-9223372036854775808\r\n"},
		{AppendArray(nil, 5), "*5\r\n"},
		{AppendMap(nil, 2, 3), "*6\r\n"},
		{AppendMap(nil, 3, 3), "%3\r\n"},
		{AppendNull(nil, 2), "$-1\r\n"},
		{AppendNull(nil, 3), "_\r\n"},
		{AppendBulk(nil, "a\r\nb"), "$4\r\na\r\nb\r\n"},
		{AppendBulk(nil, []byte{}), "$0\r\n\r\n"},
		{AppendStatus(nil, "OK"), "+OK\r\n"},
		{AppendError(nil, "ERR a\r\n+OK"), "-ERR a  +OK\r\n"},
	} {
		if string(c.got) != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// Any input is a command, an error or too short; the words lie in the input; and a parser that gets
// less of it says the same or asks for more.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"*1\r\n$4\r\nPING\r\n", "*4\r\n$6\r\nRL.GET\r\n$1\r\nk\r\n$1\r\n1\r\n$1\r\n1\r\n",
		"PING\r\n", "POST /", "\r\n*", "*1\r\n$-1\r\n", "*65\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, n, err := Parse(in, nil)
		if n < 0 || n > len(in) || err == nil && n > MaxCommand && len(got) > 0 {
			t.Fatalf("%d bytes of %d", n, len(in))
		}
		if err != nil {
			var fault Error
			if !errors.As(err, &fault) && err != ErrHTTP {
				t.Fatalf("an error of another kind: %v", err)
			}
		}
		if err == nil && n == 0 && len(in) >= MaxCommand {
			t.Fatalf("%d bytes are not enough", len(in))
		}
		// written as we would, it is the same command
		if err == nil && len(got) > 0 && in[0] == '*' {
			b := AppendArray(nil, len(got))
			for _, w := range got {
				b = AppendBulk(b, w)
			}
			again, m, err := Parse(b, nil)
			if err != nil || m != len(b) || !slices.EqualFunc(again, got, bytes.Equal) {
				t.Fatalf("%q is read as %q, and %q as %q: %v", in, got, b, again, err)
			}
		}
		if err == nil && len(got) > 0 {
			for i := range n {
				if less, m, err := Parse(in[:i:i], nil); err != nil || m != 0 || len(less) != 0 {
					t.Fatalf("%d bytes of %d: %q, %d bytes, %v", i, n, less, m, err)
				}
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	in := []byte(
		"*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nk:00000000012345\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n" +
			"60\r\n")
	var command [][]byte
	b.ReportAllocs()
	for b.Loop() {
		command, _, _ = Parse(in, command)
	}
}
