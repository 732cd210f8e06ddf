package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// pty is a terminal, and perhaps a program of its own that has it.
type pty struct {
	t      *testing.T
	master *os.File
	slave  *os.File // as the program sees it
	cmd    *exec.Cmd
	done   chan struct{} // closed when the program has ended
	err    error         // that of its end

	mu     sync.Mutex // guards screen
	screen *glass
}

func ioctl(t *testing.T, f *os.File, request uintptr, arg unsafe.Pointer) {
	t.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var errno syscall.Errno
	if err := conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg))
	}); err != nil || errno != 0 {
		t.Fatalf("ioctl %#x: %v %v", request, err, errno)
	}
}

// newPTY makes a terminal of a size. At the end of the test it has to be as it was at first.
func newPTY(t *testing.T, width, height int) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals can be made here:", err)
	}
	p := &pty{t: t, master: master, screen: newGlass(width, height)}
	var locked, number int32
	ioctl(t, master, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	ioctl(t, master, syscall.TIOCGPTN, unsafe.Pointer(&number))
	p.resize(width, height)
	p.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := modes(t, p.slave)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			p.mu.Lock()
			p.screen.write(buf[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if after := modes(t, p.slave); after != before {
			t.Errorf("the terminal is left in another mode: %+v; before %+v", after, before)
		}
		p.givenBack()
		p.slave.Close()
		master.Close()
	})
	return p
}

// startPTY starts a verb of the program on a terminal of a size. The program has to end within the
// test.
func startPTY(t *testing.T, width, height int, env []string, args ...string) *pty {
	t.Helper()
	p := newPTY(t, width, height)
	p.done = make(chan struct{})
	p.cmd = exec.Command(built, args...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.slave, p.slave, p.slave
	p.cmd.Env = append(os.Environ(), append([]string{"TERM=xterm", "NO_COLOR="}, env...)...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// givenBack waits until the terminal shows what it showed before.
func (p *pty) givenBack() {
	p.t.Helper()
	eventually(p.t, "the terminal is given back", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if s := p.screen; s.other || s.hidden || s.unwrapped {
			return fmt.Errorf("its other screen: %v, a hidden cursor: %v, cut lines: %v", s.other,
				s.hidden, s.unwrapped)
		}
		return nil
	})
}

// modes are the settings of a terminal.
func modes(t *testing.T, f *os.File) (m syscall.Termios) {
	t.Helper()
	ioctl(t, f, syscall.TCGETS, unsafe.Pointer(&m))
	return m
}

func (p *pty) resize(width, height int) {
	p.t.Helper()
	size := [4]uint16{uint16(height), uint16(width)}
	ioctl(p.t, p.master, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.screen.resize(width, height)
}

// press types.
func (p *pty) press(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// text is what the terminal shows.
func (p *pty) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.text()
}

// colours are those that the terminal shows now.
func (p *pty) colours() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.screen.colours, " ")
}

// shows waits until the terminal shows all texts, wherever their lines break; one that begins with
// "!" must not be there.
func (p *pty) shows(texts ...string) {
	p.t.Helper()
	eventually(p.t, "the terminal shows "+strings.Join(texts, ", "), func() error {
		now := unbroken(p.text())
		for _, text := range texts {
			if without, not := strings.CutPrefix(text, "!"); not ==
				strings.Contains(now, without) {
				return fmt.Errorf("%q:\n%s", text, p.text())
			}
		}
		return nil
	})
}

// unbroken is a text with one space between its words.
func unbroken(text string) string { return strings.Join(strings.Fields(text), " ") }

// ends waits for the end of the program, and says how it was.
func (p *pty) ends() error {
	p.t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(20 * time.Second):
		p.t.Fatalf("the program does not end:\n%s", p.text())
		return nil
	}
}
