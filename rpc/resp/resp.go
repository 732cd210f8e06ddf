// Package resp encodes and decodes the Redis protocol, versions 2 and 3 (RESP2, RESP3). It knows no
// command and no connection. Follow one command:
//
//  1. The owner of the connection reads available bytes into a buffer and calls Parse. Parse
//     returns the words of the first command, as slices of the buffer, and its length in bytes; the
//     length is 0 while the command is incomplete.
//  2. The Append functions write the reply.
//
// Commands are arrays of strings. Of the form without arrays ("inline", for people with telnet)
// there are PING and QUIT and no more: with it, any page could have a browser talk to a server on
// loopback by posting a form.
package resp

import (
	"errors"
	"strconv"
)

// Bounds of a command. Declared lengths are compared with them at once, so no client makes a server
// wait for, or keep, more than this.
const (
	MaxArgs    = 64       // words of a command
	MaxCommand = 16 << 10 // bytes of a whole command
	maxDigits  = 10       // of a length
)

// Error is a violation of the protocol. The bytes after it cannot be understood: send the error to
// the client, and close. The texts are those of Smyte's decoder.
type Error string

func (e Error) Error() string { return string(e) }

const (
	errArray  Error = "Protocol Error: Invalid Array length"
	errBulk   Error = "Protocol Error: Invalid Bulk String length"
	errEnding Error = `Protocol Error: Expect '\r\n'`
)

// ErrHTTP says that the bytes are HTTP, perhaps a page that abuses a browser. Close without a
// reply.
var ErrHTTP = errors.New("this is HTTP, not the Redis protocol")

// errMore says that a command is incomplete.
var errMore = errors.New("more is needed")

// Parse reads the command at the beginning of b. Its words are appended to words[:0] and lie in b.
// n is its length in bytes: 0 if b does not hold all of it yet. If n is above 0 and there are no
// words, b began with empty lines. An error is an Error or ErrHTTP.
func Parse(b []byte, words [][]byte) (_ [][]byte, n int, err error) {
	words = words[:0]
	for n+1 < len(b) && b[n] == '\r' && b[n+1] == '\n' {
		n += 2
	}
	if n > 0 || len(b) == 0 {
		return words, n, nil
	}
	if b[0] == '*' {
		words, n, err = parseArray(b, words)
	} else {
		words, n, err = parseInline(b, words)
	}
	if err == errMore {
		return words[:0], 0, nil
	}
	return words, n, err
}

func parseArray(b []byte, words [][]byte) (_ [][]byte, n int, err error) {
	count, n, err := parseLength(b, 1, errArray)
	if err != nil {
		return words, n, err
	}
	if count < 1 || count > MaxArgs {
		return words, n, errArray
	}
	for range count {
		if n == len(b) {
			return words, n, errMore
		}
		if b[n] != '$' {
			return words, n, errBulk
		}
		var length int
		if length, n, err = parseLength(b, n+1, errBulk); err != nil {
			return words, n, err
		}
		if length > MaxCommand-2-n {
			return words, n, errBulk
		}
		end := n + length
		if end+1 < len(b) {
			if b[end] != '\r' || b[end+1] != '\n' {
				return words, n, errEnding
			}
			words = append(words, b[n:end:end])
			n = end + 2
			continue
		}
		return words, n, errMore
	}
	return words, n, nil
}

// parseLength reads the digits at b[n:] and the end of their line.
func parseLength(b []byte, n int, fault Error) (length, next int, err error) {
	begin := n
	for ; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
		if n-begin == maxDigits {
			return 0, n, fault
		}
		length = 10*length + int(b[n]-'0')
	}
	switch {
	case n == len(b):
		return 0, n, errMore
	case n == begin || b[n] != '\r':
		return 0, n, fault
	case n+1 == len(b):
		return 0, n, errMore
	case b[n+1] != '\n':
		return 0, n, fault
	}
	return length, n + 2, nil
}

// inlines are the inline commands that are understood, and the beginnings of HTTP.
var inlines = []string{"PING\r\n", "QUIT\r\n", "POST ", "HOST:"}

func parseInline(b []byte, words [][]byte) (_ [][]byte, n int, err error) {
	if string(b) == "\r" { // half of an empty line
		return words, 0, errMore
	}
	for i, line := range inlines {
		if n := min(len(b), len(line)); !equalFold(b[:n], line[:n]) {
			continue
		} else if n < len(line) {
			return words, 0, errMore
		}
		if i >= 2 {
			return words, 0, ErrHTTP
		}
		return append(words, b[:4:4]), len(line), nil
	}
	return words, 0, errArray
}

// equalFold reports whether b equals upper without regard to the case of letters in b. upper is in
// capitals and as long as b.
func equalFold(b []byte, upper string) bool {
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != upper[i] {
			return false
		}
	}
	return true
}

// AppendInt writes a number.
func AppendInt(b []byte, n int64) []byte { return appendLine(b, ':', n) }

// AppendArray begins an array of n replies.
func AppendArray(b []byte, n int) []byte { return appendLine(b, '*', int64(n)) }

// AppendMap begins a map of n pairs of replies; version 2 of the protocol has none, and gets an
// array.
func AppendMap(b []byte, version, n int) []byte {
	if version < 3 {
		return appendLine(b, '*', 2*int64(n))
	}
	return appendLine(b, '%', int64(n))
}

// AppendNull writes that there is nothing.
func AppendNull(b []byte, version int) []byte {
	if version < 3 {
		return append(b, "$-1\r\n"...)
	}
	return append(b, "_\r\n"...)
}

// AppendBulk writes a string of any bytes.
func AppendBulk[T string | []byte](b []byte, s T) []byte {
	b = appendLine(b, '$', int64(len(s)))
	b = append(b, s...)
	return append(b, "\r\n"...)
}

// AppendStatus writes a short text of ours, without line breaks: "OK".
func AppendStatus(b []byte, text string) []byte {
	b = append(b, '+')
	b = append(b, text...)
	return append(b, "\r\n"...)
}

// AppendError writes an error reply. Line breaks in text become blanks.
func AppendError(b []byte, text string) []byte {
	b = append(b, '-')
	for i := range len(text) {
		if c := text[i]; c == '\r' || c == '\n' {
			b = append(b, ' ')
		} else {
			b = append(b, c)
		}
	}
	return append(b, "\r\n"...)
}

func appendLine(b []byte, kind byte, n int64) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, n, 10)
	return append(b, "\r\n"...)
}
