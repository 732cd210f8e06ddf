package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/bench/contest"
)

// The figures of the row build.
const (
	buildCPU     = "CPU of the build"
	libraryCPU   = "CPU of the standard library's build"
	buildElapsed = "time of the build"
	strippedSize = "stripped"
	symbolSize   = "with symbols"
)

// buildRow builds the node once, from an empty cache, and says how large it is and by what.
func buildRow(_ int, _ time.Duration, progress io.Writer) (*contest.Report, error) {
	dir, err := os.MkdirTemp("", "bench-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	job := contest.Job{Contestant: "penstock", Point: "linux, without cgo"}
	fmt.Fprintf(progress, "building penstock from an empty cache, which takes a minute or more\n")
	yardstick := contest.MeasureYardstick()
	library, err := libraryPackages()
	if err != nil {
		return nil, err
	}
	// with the same flags, so that the build of the node finds it in the cache
	first, err := build(dir, os.DevNull, "-s -w", library...)
	if err != nil {
		return nil, err
	}
	figures, err := build(dir, filepath.Join(dir, "stripped"), "-s -w", "./cmd/node")
	if err != nil {
		return nil, err
	}
	figures[contest.Yardstick], figures[libraryCPU] = yardstick, first[buildCPU]
	figures[buildCPU] += first[buildCPU]
	figures[buildElapsed] += first[buildElapsed]
	withSymbols := filepath.Join(dir, "symbols")
	more, err := build(dir, withSymbols, "", "./cmd/node")
	if err != nil {
		return nil, err
	}
	figures[strippedSize], figures[symbolSize] = figures[fileSize], more[fileSize]
	delete(figures, fileSize)
	table, err := sizes(withSymbols)
	if err != nil {
		return nil, err
	}
	return &contest.Report{
		Name: "build", Title: "Building a node, and its size", Base: "penstock",
		Machine: contest.ThisMachine(), Rounds: 1,
		Samples: contest.Results{{Job: job, Figures: figures}},
		Tables:  buildTables, Aims: buildAims(job), Notes: []string{table},
	}, nil
}

// fileSize is that of what was built.
const fileSize = "size"

var buildTables = []contest.Table{
	{Title: "Stripped, MB", Short: "stripped, MB", Figure: strippedSize, Digits: 1},
	{Title: "With symbols, MB", Short: "with symbols, MB", Figure: symbolSize, Digits: 1},
	{
		Title: "CPU of go build from an empty cache, s", Short: "CPU of go build, s",
		Figure: buildCPU, Digits: 1,
	},
	{
		Title: "Of it the standard library's, s", Short: "standard library's, s",
		Figure: libraryCPU, Digits: 1,
	},
	{Title: "Its time, s", Short: "time, s", Figure: buildElapsed, Digits: 1},
}

func buildAims(job contest.Job) []contest.Aim {
	aim := func(work, figure string, want float64, unit string) contest.Aim {
		return contest.Aim{
			Work: work, Job: job, Figure: figure, Better: contest.Less, Want: want, Unit: unit,
		}
	}
	return []contest.Aim{
		aim("go build from an empty cache: CPU", buildCPU, 60, "s"),
		aim("… the binary, stripped", strippedSize, 20, "MB"),
	}
}

// libraryPackages are those of the standard library that the node needs, without those that only
// the library may name: they are built along.
func libraryPackages() (names []string, err error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if .Standard}}{{.ImportPath}}{{end}}",
		"-tags=grpcnotrace", "./cmd/node")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	said, err := cmd.Output()
	for _, name := range strings.Fields(string(said)) {
		if !strings.Contains("/"+name+"/", "/internal/") && !strings.HasPrefix(name, "vendor/") {
			names = append(names, name)
		}
	}
	return names, err
}

// build builds packages into file with the cache in dir, as a release is built.
func build(dir, file, ldflags string, packages ...string) (map[string]float64, error) {
	cmd := exec.Command("go", append([]string{
		"build", "-trimpath", "-tags=grpcnotrace", "-ldflags", ldflags, "-o", file,
	}, packages...)...)
	cmd.Dir = ".." // the module of the node
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=",
		"GOCACHE="+filepath.Join(dir, "cache"))
	var said bytes.Buffer
	cmd.Stderr = &said
	began := time.Now()
	others, err := contest.Watch(cmd)
	if err != nil {
		return nil, fmt.Errorf("the node cannot be built: %w\n%s", err, said.String())
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{
		buildCPU:     (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(),
		buildElapsed: time.Since(began).Seconds(),
		fileSize:     float64(info.Size()) / 1e6,
	}
	if others >= 0 {
		figures[contest.Others] = others
	}
	return figures, nil
}

// sizes is a table of the code and constants of each module in a binary with symbols.
func sizes(file string) (string, error) {
	said, err := exec.Command("go", "tool", "nm", "-size", file).Output()
	if err != nil {
		return "", fmt.Errorf("go tool nm: %w", err)
	}
	size := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(said)); lines.Scan(); {
		if module, n := symbol(lines.Text()); n > 0 {
			size[module] += n
		}
	}
	const shown = 60_000
	var b strings.Builder
	b.WriteString("Code and constants by module. The table that finds lines and frames of " +
		"functions grows with the code and is not in it; a generic function counts for the " +
		"package that declares it.\n\n| module | kB |\n|---|--:|\n")
	few, rest, sum := 0, 0, 0
	for _, module := range slices.SortedFunc(maps.Keys(size), func(a, b string) int {
		return cmp.Or(cmp.Compare(size[b], size[a]), cmp.Compare(a, b))
	}) {
		sum += size[module]
		if size[module] < shown {
			few, rest = few+1, rest+size[module]
			continue
		}
		fmt.Fprintf(&b, "| %s | %d |\n", module, size[module]/1000)
	}
	fmt.Fprintf(&b, "| %d others, together | %d |\n| all | %d |", few, rest/1000, sum/1000)
	return b.String(), nil
}

// symbol reads a line of go tool nm -size: address, size, kind and name. It returns the module, and
// 0 for what is neither code nor a constant, or belongs to nobody.
func symbol(line string) (module string, size int) {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.Contains("tTrR", fields[2]) {
		return "", 0
	}
	name := fields[3]
	if strings.HasPrefix(name, "go:") || strings.HasPrefix(name, "type:") {
		return "", 0
	}
	size, err := strconv.Atoi(fields[1])
	if err != nil {
		return "", 0
	}
	name, _, _ = strings.Cut(name, "[") // the types of a generic function are not its package
	parts := strings.Split(name, "/")
	last := len(parts) - 1
	parts[last], _, _ = strings.Cut(parts[last], ".")
	switch {
	case parts[0] == "penstock" || parts[0] == "main":
		return "penstock", size
	case last == 0 || !strings.Contains(parts[0], "."):
		return "standard library", size
	case parts[0] == "github.com" && last > 1:
		return strings.Join(parts[:3], "/"), size
	}
	return strings.Join(parts[:2], "/"), size
}
