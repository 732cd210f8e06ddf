package servers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Programs are what is measured, built from source, in a folder of their own.
type Programs struct {
	Dir  string   // where binaries, settings and logs lie
	Self string   // this program: it is the empty service too
	env  []string // more variables for the environment of what is started
}

// source is a program that can be built: in a folder, from the module penstock/bench.
type source struct{ folder, name, what string }

var (
	penstockSource   = source{"..", "penstock", "./cmd/node"}
	gubernatorSource = source{"gubernator", "gubernator", "."}
	ratelimitSource  = source{
		"ratelimit", "ratelimit",
		"github.com/envoyproxy/ratelimit/src/service_cmd",
	}
)

// Build builds into dir the programs of the rows. module is the folder of the module
// penstock/bench. A missing program that must be installed is an error.
func Build(module, dir string, rows []Row, progress io.Writer) (*Programs, error) {
	sources := []source{penstockSource}
	for _, row := range rows {
		for _, c := range row.contestants {
			if program := c.missing(); program != "" {
				return nil, fmt.Errorf("row %s needs %s, which is not installed: apt-get install "+
					"redis-server redis-tools, or choose other rows with -only", row.Name, program)
			}
			if c.builds != (source{}) && !slices.Contains(sources, c.builds) {
				sources = append(sources, c.builds)
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		fmt.Fprintf(progress, "building %s\n", s.name)
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, s.name), s.what)
		cmd.Dir = filepath.Join(module, s.folder)
		// as images have them: without the C library, which is 1.5 MB resident
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s cannot be built: %w\n%s", s.name, err, out)
		}
	}
	return &Programs{Dir: dir, Self: self}, os.WriteFile(filepath.Join(dir, "limits.yaml"),
		[]byte(limits), 0o644)
}

// missing is a program that c needs and nobody has installed; empty if there is none.
func (c *contestant) missing() string {
	for _, program := range c.installed {
		if _, err := exec.LookPath(program); err != nil {
			return program
		}
	}
	return ""
}

// limits are those of penstock's nodes. Only the limit called few denies requests. A unit of big
// comes back after 3.6 s: a key's state is not forgotten before the key is asked for again, which
// would be other work. One of slow comes back after an hour.
const limits = `limits:
  - {name: big, algorithm: gcra, limit: 8000000, per: 8000h}
  - {name: slow, algorithm: gcra, limit: 1000, per: 1000h}
  - {name: lent, algorithm: gcra, limit: 1000000000, per: 1h, consistency: leased}
  - {name: lent-few, algorithm: fixed_window, limit: 1000, per: 1h, consistency: leased}
`

// process is a server at work.
type process struct {
	cmd  *exec.Cmd
	log  string
	over chan struct{} // closed when it has ended
}

// start starts a program in p.Dir with more variables in its environment.
func (p *Programs) start(program string, env []string, args ...string) (*process, error) {
	if !filepath.IsAbs(program) {
		program = filepath.Join(p.Dir, program)
	}
	return p.run(exec.Command(program, args...), env)
}

// startLater is start for a program that begins when begin is called. This process asks nobody
// while it forks, for up to 20 ms: so it forks now.
func (p *Programs) startLater(program string, args ...string) (s *process, begin func() error,
	err error,
) {
	args = append([]string{"-c", `read begin && exec "$0" "$@"`, filepath.Join(p.Dir, program)},
		args...)
	cmd := exec.Command("sh", args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	if s, err = p.run(cmd, nil); err != nil {
		return nil, nil, err
	}
	return s, func() error {
		_, err := io.WriteString(in, "\n")
		return err
	}, nil
}

func (p *Programs) run(cmd *exec.Cmd, env []string) (*process, error) {
	log, err := os.CreateTemp(p.Dir, filepath.Base(cmd.Path)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Dir, log, log
	cmd.Env = slices.Concat(os.Environ(), p.env, env)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &process{cmd, log.Name(), make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(s.over)
	}()
	return s, nil
}

// stop ends it, gently first.
func (s *process) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.over:
	case <-time.After(5 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.over
	}
}

// awaitListener waits until somebody listens at addr.
func (s *process) awaitListener(addr string) error {
	for range 200 {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			return c.Close()
		}
		select {
		case <-s.over:
			return s.fault("ended")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return s.fault("does not listen at " + addr)
}

// fault says what the process said of itself.
func (s *process) fault(what string) error {
	said, _ := os.ReadFile(s.log)
	return fmt.Errorf("%s %s; it said:\n%s", filepath.Base(s.cmd.Path), what,
		said[max(0, len(said)-2000):])
}

// cpu is the processor time that it has used.
func (s *process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// the name before it may have spaces
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat is not as expected")
	}
	user, err := strconv.Atoi(string(fields[11]))
	system, err2 := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err, err2)
}

// resident is its memory, in bytes.
func (s *process) resident() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, found := strings.CutPrefix(line, "VmRSS:"); found {
			kb, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("/proc/PID/status has no VmRSS")
}

// freePorts are ports of host on which nobody listens.
func freePorts(host string, n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all of them at the end: none comes twice
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
