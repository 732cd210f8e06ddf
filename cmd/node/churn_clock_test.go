//go:build linux && amd64

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What windows and buckets of the test would not survive: its keys have a limit in 10 minutes, and
// one in 10 days.
func init() {
	churns = append(churns,
		fault{
			"the wall clock of a node is stepped by 100 h, back by 200 h, and set right again",
			func(c *churn) {
				for _, by := range []time.Duration{100 * time.Hour, -100 * time.Hour, 0} {
					c.step(1, by)
					time.Sleep(500 * time.Millisecond)
				}
			}, none,
		})
}

// stepClock sets the wall clock that a running process sees, and no other, by so much; of a process
// that was stepped before, from the true time. The process is what users run, and has no hook for
// it: a Go program reads its clocks from the page of code that the kernel maps into each process
// (vDSO), and there clock_gettime gets another body:
//
//	mov eax, 228; syscall        clock_gettime, by the kernel itself
//	test edi, edi; jne out       of another clock than CLOCK_REALTIME: the monotonic one goes on
//	mov rdx, step; add [rsi], rdx
//	out: ret
func stepClock(p *process, step time.Duration) error {
	code := []byte{0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 13, 0x48, 0xba}
	code = binary.LittleEndian.AppendUint64(code, uint64(int64(step/time.Second)))
	code = append(code, 0x48, 0x01, 0x16, 0xc3)

	pid := p.cmd.Process.Pid
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	from, to, err := vdso(pid)
	if err != nil {
		return err
	}
	image := make([]byte, to-from)
	if _, err := memory.ReadAt(image, from); err != nil {
		return err
	}
	at, err := clockGettime(image)
	if err != nil {
		return err
	}
	// No thread may be in what is written over. A few milliseconds are no pause that a node would
	// notice.
	for range 200 {
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		outside := waitStopped(pid) && allOutside(pid, from, to)
		if outside {
			_, err = memory.WriteAt(code, from+at)
		}
		if err := errors.Join(err, p.cmd.Process.Signal(syscall.SIGCONT)); err != nil || outside {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("some thread is always reading the clock")
}

// vdso is where that page lies.
func vdso(pid int) (from, to int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			_, err = fmt.Sscanf(line, "%x-%x", &from, &to)
			return from, to, err
		}
	}
	return 0, 0, errors.New("the process has no vDSO")
}

func clockGettime(image []byte) (at int64, err error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return int64(s.Value), nil
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime")
}

// eachThread reads one file of each thread.
func eachThread(pid int, name string, see func(text string) bool) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, name))
	if err != nil || len(files) == 0 {
		return false
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !see(string(text)) {
			return false
		}
	}
	return true
}

func waitStopped(pid int) bool {
	for range 100 {
		if eachThread(pid, "stat",
			func(text string) bool { return strings.Contains(text, ") T ") }) {
			return true
		}
		time.Sleep(100 * time.Microsecond)
	}
	return false
}

// allOutside reports whether no thread of a process that is stopped is at an instruction in
// between.
func allOutside(pid int, from, to int64) bool {
	return eachThread(pid, "syscall", func(text string) bool {
		// the last is the instruction's address, whether the thread is in a call of the kernel or
		// not
		words := strings.Fields(text)
		if len(words) < 2 {
			return false
		}
		pc, err := strconv.ParseUint(words[len(words)-1], 0, 64)
		return err == nil && (pc < uint64(from) || pc >= uint64(to))
	})
}

// wallOf is what a node believes the time to be: net/http says it with every answer.
func wallOf(p *process) (time.Time, error) {
	answer, err := http.Get("http://" + p.http + "/healthz")
	if err != nil {
		return time.Time{}, err
	}
	answer.Body.Close()
	return http.ParseTime(answer.Header.Get("Date"))
}

// step sets the wall clock of a node, and makes sure that the node sees it.
func (c *churn) step(i int, by time.Duration) {
	c.t.Helper()
	if err := stepClock(c.nodes[i], by); err != nil {
		c.t.Fatalf("the wall clock of n%d cannot be stepped: %v", i+1, err)
	}
	wall, err := wallOf(c.nodes[i])
	if off := time.Until(wall) - by; err != nil || off.Abs() > 5*time.Second {
		c.t.Errorf("n%d was stepped by %v, and it says that it is %v: %v", i+1, by, wall, err)
	}
}
