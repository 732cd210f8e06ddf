package cores

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// watchLocks says which part of the time of n callers, in %, they wait for which lock while work
// goes on, by the runtime's profile of mutexes. What spins on a lock is no wait.
func watchLocks(n int, work func() error) (map[string]float64, error) {
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
	before, err := waited()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := work(); err != nil {
		return nil, err
	}
	spent := time.Since(began).Seconds() * float64(n)
	after, err := waited()
	if err != nil {
		return nil, err
	}
	shares := map[string]float64{}
	for lock, seconds := range after {
		if more := seconds - before[lock]; more > 0 {
			shares[lock] = 100 * more / spent
		}
	}
	return shares, nil
}

// waited are the seconds that goroutines have waited for locks since the process began.
func waited() (map[string]float64, error) {
	var text bytes.Buffer
	if err := pprof.Lookup("mutex").WriteTo(&text, 1); err != nil {
		return nil, err
	}
	return parseLocks(&text)
}

// parseLocks reads a profile of mutexes as the runtime writes it for people:
//
//	cycles/second=2500000000
//	CYCLES COUNT @ 0x… 0x…
//	#	0x…	internal/sync.(*Mutex).Unlock+0x5d	/usr/…/mutex.go:194
//	#	0x…	penstock/limiter.(*Table).Take+0x14e	…
//
// A lock is called by the first function that is not of the library's: it has let the others wait.
func parseLocks(r io.Reader) (map[string]float64, error) {
	seconds, perSecond, cycles, named := map[string]float64{}, 0.0, 0.0, true
	note := func(name string) {
		if !named {
			seconds[name] += cycles / perSecond
			named = true
		}
	}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		if text, found := strings.CutPrefix(line, "cycles/second="); found {
			var err error
			if perSecond, err = strconv.ParseFloat(text, 64); err != nil || perSecond <= 0 {
				return nil, fmt.Errorf("a profile of mutexes says %q", line)
			}
			continue
		}
		if frame, found := strings.CutPrefix(line, "#\t"); found {
			if name := functionOf(frame); !isLibrary(name) {
				note(name)
			}
			continue
		}
		if head, _, found := strings.Cut(line, " @"); found {
			note(runtimes)
			x, err := strconv.ParseFloat(strings.Fields(head)[0], 64)
			if err != nil {
				return nil, fmt.Errorf("a profile of mutexes says %q", line)
			}
			cycles, named = x, false
		}
	}
	note(runtimes)
	return seconds, nil
}

// runtimes are the locks of the runtime itself.
const runtimes = "the runtime's own"

func functionOf(frame string) string {
	fields := strings.Fields(frame)
	if len(fields) < 2 {
		return ""
	}
	name, _, _ := strings.Cut(fields[1], "+0x")
	return name
}

func isLibrary(function string) bool {
	for _, of := range []string{"sync.", "internal/sync.", "runtime.", "internal/"} {
		if strings.HasPrefix(function, of) {
			return true
		}
	}
	return function == ""
}
