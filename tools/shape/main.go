// Shape measures how readable the tree is, prints one figure a line, and holds the figures against
// those that are recorded beside it in the file figures:
//
//	go run -C tools ./shape            prints the figures; exits 1 if one is worse than recorded
//	go run -C tools ./shape -places    also prints the places behind each figure
//	go run -C tools ./shape -record    records the figures of today, if none is worse
//
// A smaller figure is always the better one. The lines of code grow with each feature as well, so
// they are shown beside the recorded ones and are never worse. Tests, generated code and the
// modules of bench and examples are left out, except from the two counts of prose, which read all
// comments and pages.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// figure is one number, and the places that it counts.
type figure struct {
	name   string
	value  int
	places []string
	size   bool // grows with each feature: shown beside the recorded one, and never worse
}

func main() {
	root := flag.String("root", "..", "the tree that is measured")
	recorded := flag.String("figures", "shape/figures", "the file of recorded figures")
	record := flag.Bool("record", false, "record the figures, if none is worse than recorded")
	places := flag.Bool("places", false, "print the places behind each figure")
	flag.Parse()

	figures, err := measure(*root)
	if err != nil {
		fail(err)
	}
	before, err := readFigures(*recorded)
	if err != nil {
		fail(err)
	}
	worse := show(figures, before, *places)
	if worse > 0 {
		fmt.Printf("%d of %d figures are worse than recorded; -places shows where\n", worse,
			len(figures))
		os.Exit(1)
	}
	if *record {
		if err := writeFigures(*recorded, figures); err != nil {
			fail(err)
		}
	}
	fmt.Printf("ok: %d figures, each as recorded or better\n", len(figures))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "shape:", err)
	os.Exit(2)
}

// show prints each figure beside the recorded one, and counts those that are worse.
func show(figures []figure, before map[string]int, places bool) (worse int) {
	for _, f := range figures {
		was, known := before[f.name]
		note := ""
		switch {
		case known && f.size && f.value != was:
			note = fmt.Sprintf("%+d", f.value-was)
		case known && f.value > was:
			note = fmt.Sprintf("WORSE than %d", was)
			worse++
		case known && f.value < was:
			note = fmt.Sprintf("better than %d", was)
		}
		fmt.Printf("%7d  %-58s %s\n", f.value, f.name, note)
		if places {
			for _, p := range f.places {
				fmt.Printf("         %s\n", p)
			}
		}
	}
	return worse
}

func measure(root string) ([]figure, error) {
	t, err := readTree(root)
	if err != nil {
		return nil, err
	}
	figures := []figure{
		t.productLines("", "lines of product code"),
		t.productLines("cluster", "lines of product code in cluster"),
		t.productLines("sim", "lines of product code in sim"),
		t.longFiles(),
		t.longFunctions(),
		t.branchyFunctions(),
		t.largeTypes(),
		t.fieldsOf("cluster", "Node"),
		t.methodsOf("cluster", "Node"),
		t.repetitions(),
		t.hangingWho(),
		t.wideLines(),
		t.wideTags(),
	}
	return figures, nil
}

func readFigures(name string) (map[string]int, error) {
	file, err := os.Open(name)
	if os.IsNotExist(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	figures := make(map[string]int)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		value, name, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %q does not begin with a number", file.Name(), line)
		}
		figures[strings.TrimSpace(name)] = n
	}
	return figures, nil
}

func writeFigures(name string, figures []figure) error {
	var b strings.Builder
	b.WriteString("# The shape of the tree when it was last recorded: go run -C tools ./shape " +
		"-record\n")
	for _, f := range figures {
		fmt.Fprintf(&b, "%d %s\n", f.value, f.name)
	}
	return os.WriteFile(name, []byte(b.String()), 0o644)
}

// filesBelow lists the files with one of the endings, by their path below root, in order.
func filesBelow(root string, endings ...string) (files []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") ||
			d.Name() == "testdata") {
			return filepath.SkipDir
		}
		for _, ending := range endings {
			if !d.IsDir() && strings.HasSuffix(path, ending) {
				below, err := filepath.Rel(root, path)
				if err != nil {
					return err
				}
				files = append(files, filepath.ToSlash(below))
			}
		}
		return nil
	})
	sort.Strings(files)
	return files, err
}
