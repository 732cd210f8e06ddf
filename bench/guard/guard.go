// Package guard keeps the hot paths as cheap as they have become: it runs their benchmarks for a
// fixed number of operations, and compares how often they allocate with figures that are kept
// beside it. Times are not compared: they say more about the machine than about a change.
package guard

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// path is benchmarks of a package that are on a hot path.
type path struct {
	pkg, bench string
	n          int // operations: so many that what happens once does not count
}

var paths = []path{
	{
		"./limiter", "^BenchmarkTake$/alg=(gcra|fixed_window|sliding_window)/keys=1e3$/dist=zipf",
		5000,
	},
	{"./limiter", "^BenchmarkDecide$/alg=.*/mostly=admitted", 5000},
	{"./cluster", "^BenchmarkCheck$", 5000},
	{"./rpc/gubernator", "^BenchmarkGubernatorDoor$", 500},
	{"./rpc", "^BenchmarkUnary$/(owner|forwarded)/callers=64", 5000},
	{"./rpc/redis", "^BenchmarkRedis$/(CL.THROTTLE|RL.REDUCE)/pipeline=50", 50_000},
	{"./rpc/envoy", "^BenchmarkShouldRateLimit$", 5000},
	{"./rpc/web", "^BenchmarkHTTP$", 5000},
	{"./embedded", "^BenchmarkTake$", 5000},
	{"./rpc/resp", "^BenchmarkParse$", 5000},
}

// figure is how often an operation of a benchmark allocates.
type figure struct {
	name        string
	allocations int
}

// most is how often it may: where nothing was allocated nothing must be, and else what a pool that
// is emptied in between costs is forgiven.
func (f figure) most() int {
	if f.allocations == 0 {
		return 0
	}
	return f.allocations + max(1, f.allocations*3/100)
}

// Check measures in the module penstock, at root, and says on out for each figure in file whether
// it is kept. If record is set it writes file instead.
func Check(root, file string, record bool, out io.Writer) error {
	var measured []figure
	for _, p := range paths {
		found, err := p.measure(root)
		if err != nil {
			return err
		}
		measured = append(measured, found...)
	}
	if record {
		return write(file, measured)
	}
	kept, err := read(file)
	if err != nil {
		return err
	}
	if bad := compare(kept, measured, out); bad > 0 {
		return fmt.Errorf(
			"%d of %d figures are not right; if that is meant: go run . guard -record", bad,
			len(kept))
	}
	return nil
}

func (p path) measure(root string) ([]figure, error) {
	cmd := exec.Command("go", "test", p.pkg, "-run", "^$", "-bench", p.bench, "-benchmem", "-cpu",
		"1", "-benchtime", fmt.Sprintf("%dx", p.n))
	cmd.Dir = root
	said, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", p.pkg, err, said)
	}
	found := parse(p.pkg, string(said))
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no benchmark is called %s", p.pkg, p.bench)
	}
	return found, nil
}

// parse reads what go test says: Benchmark…   5000   123 ns/op   0 B/op   0 allocs/op
func parse(pkg, said string) (found []figure) {
	for line := range strings.Lines(said) {
		fields := strings.Fields(line)
		i := slices.Index(fields, "allocs/op")
		if i < 1 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		if n, err := strconv.Atoi(fields[i-1]); err == nil {
			found = append(found, figure{strings.TrimPrefix(pkg, "./") + "." + fields[0], n})
		}
	}
	return found
}

// compare says for each figure that is kept whether it still holds, and which are measured and not
// kept. It returns how many of both there are.
func compare(kept, measured []figure, out io.Writer) (bad int) {
	for _, k := range kept {
		i := slices.IndexFunc(measured, func(f figure) bool { return f.name == k.name })
		switch {
		case i < 0:
			bad++
			fmt.Fprintf(out, "not ok %s: is not measured any more\n", k.name)
		case measured[i].allocations > k.most():
			bad++
			fmt.Fprintf(out, "not ok %s: allocates %d times, at most %d are kept\n", k.name,
				measured[i].allocations, k.most())
		default:
			fmt.Fprintf(out, "ok %s: allocates %d times, at most %d are kept\n", k.name,
				measured[i].allocations, k.most())
		}
	}
	for _, m := range measured {
		if !slices.ContainsFunc(kept, func(f figure) bool { return f.name == m.name }) {
			bad++
			fmt.Fprintf(out, "not ok %s: allocates %d times, and nobody has written down how "+
				"often it may\n", m.name, m.allocations)
		}
	}
	return bad
}

const header = "# How often an operation of these benchmarks allocates. go run . guard " +
	"compares, go run . guard -record writes.\n"

func write(file string, all []figure) error {
	var b strings.Builder
	b.WriteString(header)
	for _, f := range all {
		fmt.Fprintf(&b, "%s %d\n", f.name, f.allocations)
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func read(file string) (all []figure, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		name, count, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "#") {
			continue
		}
		allocations, err := strconv.Atoi(count)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %q; write a benchmark and its allocations", file, n,
				lines.Text())
		}
		all = append(all, figure{name, allocations})
	}
	return all, lines.Err()
}
