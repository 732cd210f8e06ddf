package policy

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// inForce watches path and returns how to ask whether a limit is in force.
func inForce(
	t *testing.T, path string,
) (has func(name string) func() bool, applied *atomic.Int64, logged *logBuffer) {
	t.Helper()
	var set atomic.Pointer[Set]
	applied, logged = new(atomic.Int64), new(logBuffer)
	w, err := Watch(path, slog.New(slog.NewTextHandler(logged, nil)), func(s *Set) {
		applied.Add(1)
		set.Store(s)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return func(name string) func() bool {
		return func() bool { return set.Load().Limits[name] != nil }
	}, applied, logged
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Promise: limits are watched, also where the path is a link or its directory is replaced.
func TestWatchFollows(t *testing.T) {
	t.Run("link", func(t *testing.T) {
		real, link := filepath.Join(t.TempDir(), "real.yaml"), filepath.Join(t.TempDir(),
			"limits.yaml")
		put(t, real, one("a"))
		if err := os.Symlink(real, link); err != nil {
			t.Fatal(err)
		}
		has, _, _ := inForce(t, link)
		put(t, real, one("b"))
		until(t, "a change behind the link is seen", has("b"))
	})
	t.Run("directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "limits")
		file := filepath.Join(dir, "a.yaml")
		make := func(name string) {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, file, one(name))
		}
		make("a")
		has, _, _ := inForce(t, dir)
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		make("b")
		until(t, "the new directory is seen", has("b"))
		put(t, file, one("c"))
		until(t, "a change in the new directory is seen", has("c"))
	})
	t.Run("new directory that is filled later", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "limits")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, "a.yaml"), one("a"))
		has, _, logged := inForce(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		until(t, "the end of the directory is seen", func() bool {
			return strings.Contains(logged.String(), "no such file or directory")
		})
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		until(t, "the new directory is seen", func() bool {
			return strings.Contains(logged.String(), "without .yaml or .yml files")
		})
		put(t, filepath.Join(dir, "b.yaml"), one("b"))
		until(t, "what comes into it is seen", has("b"))
	})
}

// Promise: what an editor or a failed copy leaves behind deletes no limits, and the State says that
// it was not taken.
func TestAnEmptiedFileDeletesNothing(t *testing.T) {
	for _, emptied := range []string{"", "# nothing\n", "{}\n", "limits:\n", one("a")[:30]} {
		t.Run(emptied, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "limits.yaml")
			put(t, file, one("a"))
			var set atomic.Pointer[Set]
			w, err := Watch(file, slog.New(slog.DiscardHandler), set.Store)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			before := w.State()
			if !before.OK || before.Last.IsZero() {
				t.Errorf("after a good load: %+v", before)
			}
			put(t, file, emptied)
			until(t, "the fault is seen", func() bool { return !w.State().OK })
			if after := w.State(); !after.Last.Equal(before.Last) || set.Load().Limits["a"] == nil {
				t.Errorf("%+v, and in force is %v", after, set.Load().Limits)
			}
			put(t, file, "limits: []\n")
			until(t, "none are wanted, and there are none", func() bool {
				return len(set.Load().Limits) == 0
			})
			if after := w.State(); !after.OK || !after.Last.After(before.Last) {
				t.Errorf("after the next good load: %+v", after)
			}
		})
	}
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "a.yaml"), one("a"))
		has, _, logged := inForce(t, dir)
		if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		until(t, "the fault is logged", func() bool {
			return strings.Contains(logged.String(), "without .yaml or .yml files")
		})
		if !has("a")() {
			t.Error("a directory without files has deleted the limits")
		}
	})
}

// Promise: what lies beside the limits changes nothing, and fills no log.
func TestOtherFilesAreSilent(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "limits.yaml")
	put(t, file, one("a"))
	has, applied, logged := inForce(t, file)
	put(t, filepath.Join(dir, "other.log"), "x")
	put(t, file, "limits: 7\n")
	until(t, "the fault is logged", func() bool {
		return strings.Contains(logged.String(), "must be a list")
	})
	put(t, file, one("b"))
	until(t, "the next good file is in force", has("b"))
	if n := applied.Load(); n != 2 {
		t.Errorf("applied %d times: a at the start and b at the end are two", n)
	}
}

// Promise: limits are as old as State says: a look that finds nothing new loads nothing.
func TestNothingNewIsNoLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, file, one("a"))
	w, err := Watch(file, slog.New(slog.DiscardHandler), func(*Set) {})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	before := w.State()
	if w.Look(); w.State() != before {
		t.Errorf("a look makes %+v of %+v", w.State(), before)
	}
	if err := w.Reload(); err != nil || !w.State().Last.After(before.Last) {
		t.Errorf("%+v after a reload, before %+v; %v", w.State(), before, err)
	}
}

// Promise: what is read again after the end is not applied.
func TestNothingIsAppliedAfterClose(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, file, one("a"))
	applied := 0
	w, err := Watch(file, slog.New(slog.DiscardHandler), func(*Set) { applied++ })
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := w.Reload(); err != ErrClosed || applied != 1 {
		t.Errorf("%v, applied %d times", err, applied)
	}
}
