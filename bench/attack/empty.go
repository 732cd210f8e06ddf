package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
)

// emptyNode is the name of a program that is no node: a server that answers each request with the
// same text, at once, and does nothing else. Under the same load it says how much of a wait is the
// machine's: its kernel, Go's scheduler, the attacker and the client.
const emptyNode = "empty"

// command is that of a node, or of the server that is none.
func (v *victim) command(program string, args ...string) *exec.Cmd {
	if program == emptyNode {
		self, err := os.Executable()
		if err == nil {
			return exec.Command(self, "-empty", v.http)
		}
	}
	return exec.Command(program, args...)
}

const emptyAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

// serveEmpty answers at the address for ever.
func serveEmpty(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go answerEmpty(c)
	}
}

// answerEmpty answers each head of a request; none has a body.
func answerEmpty(c net.Conn) {
	defer c.Close()
	for in := bufio.NewReaderSize(c, 2<<10); ; {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) > 2 {
			continue
		}
		if _, err := io.WriteString(c, emptyAnswer); err != nil {
			return
		}
	}
}
