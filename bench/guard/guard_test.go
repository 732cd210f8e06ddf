package guard

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const said = `goos: linux
BenchmarkTake/keys=1e3 	 5000	 37.0 ns/op	 30.37 %allowed	 0 B/op	 0 allocs/op
BenchmarkCheck         	 5000	 1500 ns/op	 15.0 ns/item	 512 B/op	 9 allocs/op
PASS
`

// TestGuardNotices: one allocation where there was none, more than a pool explains where there were
// some, and a benchmark that is gone.
func TestGuardNotices(t *testing.T) {
	measured := parse("./limiter", said)
	if want := []figure{
		{"limiter.BenchmarkTake/keys=1e3", 0},
		{"limiter.BenchmarkCheck", 9},
	}; !slices.Equal(measured, want) {
		t.Fatalf("%v, want %v", measured, want)
	}
	for _, test := range []struct {
		name        string
		allocations int
		want        string
	}{
		{
			"limiter.BenchmarkTake/keys=1e3", 0,
			"ok limiter.BenchmarkTake/keys=1e3: allocates 0 times, at most 0",
		},
		{"limiter.BenchmarkCheck", 9, "ok limiter.BenchmarkCheck: allocates 9 times, at most 10"},
		{"limiter.BenchmarkCheck", 8, "ok "},
		{
			"limiter.BenchmarkCheck", 7,
			"not ok limiter.BenchmarkCheck: allocates 9 times, at most 8",
		},
		{
			"limiter.BenchmarkCheck", 0,
			"not ok limiter.BenchmarkCheck: allocates 9 times, at most 0",
		},
		{"limiter.BenchmarkGone", 3, "not ok limiter.BenchmarkGone: is not measured"},
	} {
		var out strings.Builder
		others := slices.DeleteFunc(slices.Clone(measured), func(f figure) bool {
			return f.name == test.name
		})
		bad := compare(append([]figure{{test.name, test.allocations}}, others...), measured, &out)
		if !strings.HasPrefix(out.String(), test.want) ||
			(bad == 1) != strings.HasPrefix(test.want, "not") {
			t.Errorf("%d bad, %q; want %q", bad, out.String(), test.want)
		}
	}
}

// TestGuardNoticesStrangers: a benchmark without a recorded figure is not guarded.
func TestGuardNoticesStrangers(t *testing.T) {
	var out strings.Builder
	bad := compare(nil, []figure{{"limiter.BenchmarkNew", 2}}, &out)
	if want := "not ok limiter.BenchmarkNew: allocates 2 times, and nobody"; bad != 1 ||
		!strings.HasPrefix(out.String(), want) {
		t.Errorf("%d bad, %q; want %q", bad, out.String(), want)
	}
}

func TestFileIsReadAsItIsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures")
	all := []figure{{"a", 0}, {"b/c=1", 144}}
	if err := write(file, all); err != nil {
		t.Fatal(err)
	}
	if back, err := read(file); err != nil || !slices.Equal(back, all) {
		t.Errorf("%v, %v", back, err)
	}
}
