package contest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Machine is where a report was made.
type Machine struct {
	CPU   string    `json:"cpu"`
	Cores int       `json:"cores"`
	Go    string    `json:"go"`
	OS    string    `json:"os"`
	Date  time.Time `json:"date"`
}

// ThisMachine is the one that this runs on.
func ThisMachine() Machine {
	return Machine{
		cpuModel(), runtime.NumCPU(), runtime.Version(),
		runtime.GOOS + "/" + runtime.GOARCH, time.Now().UTC().Truncate(time.Second),
	}
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores (%s), %s, %s, %s", m.Cores, m.CPU, m.Go, m.OS,
		m.Date.Format("2006-01-02 15:04 MST"))
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, _ := strings.Cut(
			lines.Text(), ":",
		); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// Watch runs cmd to its end and returns how many cores of this machine other programs used
// meanwhile, or −1 if that is unknown.
func Watch(cmd *exec.Cmd) (others float64, err error) {
	m := NewMeter()
	if err := cmd.Run(); err != nil {
		return -1, err
	}
	return m.Others(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()), nil
}

// Meter tells how many cores are in use, from when it is made.
type Meter struct {
	began  time.Time
	before time.Duration
}

func NewMeter() Meter { return Meter{time.Now(), busy()} }

// Others is how many cores other programs have used since then, beside the measured one, which has
// used own; −1 if that is unknown.
func (m Meter) Others(own time.Duration) float64 {
	if m.before < 0 {
		return -1
	}
	return max(0, (busy()-m.before-own).Seconds()/time.Since(m.began).Seconds())
}

// busy is how long all cores together have worked since the machine was started, −1 where
// /proc/stat does not say.
func busy() time.Duration {
	// Linux counts hundredths of a second for everybody, whatever its own clock is
	const perSecond = 100
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return -1
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	// cpu user nice system idle iowait irq softirq steal …
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return -1
	}
	ticks := 0
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return -1
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / perSecond
}
