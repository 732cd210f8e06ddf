package policy

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"penstock/textfile"
)

const (
	// settle is how long the files must be left alone before they are read: an editor or a
	// ConfigMap makes several changes of one. After patience they are read in any case.
	settle   = 100 * time.Millisecond
	patience = time.Second
	// lookAgain is how often a directory that cannot be watched, because it is gone, is looked for.
	lookAgain = 2 * time.Second
)

// Watcher keeps the limits of a path up to date.
type Watcher struct {
	path  string
	what  string // the file has, for the log
	log   *slog.Logger
	files *fsnotify.Watcher
	done  sync.WaitGroup

	// held while limits are loaded and applied: they are applied in the order in which they were
	// read
	mu     sync.Mutex
	renew  func(always bool) (limits int, renewed bool, err error)
	fault  string // of the last load, "" if there was none
	closed bool

	state atomic.Pointer[State]
}

// State is how the last load ended.
type State struct {
	OK   bool      // what the files say is in force
	Last time.Time // when something was last loaded
}

// State may be asked at any time.
func (w *Watcher) State() State { return *w.state.Load() }

// content is limits as Load and LoadEnvoy return them.
type content[T any] interface {
	equal(T) bool
	count() int // of limits
}

// Watch loads path, hands the set to apply, and does so again whenever the limits change, until
// Close. If the first load fails Watch fails; if a later one fails the error is logged and the set
// in force stays. apply is called by one goroutine at a time.
func Watch(path string, log *slog.Logger, apply func(*Set)) (*Watcher, error) {
	return watch(path, log, Load, apply)
}

// WatchEnvoy is Watch for files of the Envoy rate limit service.
func WatchEnvoy(path string, log *slog.Logger, apply func(*Envoy)) (*Watcher, error) {
	return watch(path, log, LoadEnvoy, apply)
}

func watch[T content[T]](
	path string, log *slog.Logger, load func(string) (T, error), apply func(T),
) (*Watcher, error) {
	var last *T // that was applied
	return WatchFile(path, "limits", log, func(always bool) (limits int, renewed bool, err error) {
		next, err := load(path)
		if err != nil || !always && last != nil && next.equal(*last) {
			return 0, false, err
		}
		last = &next
		apply(next)
		return next.count(), true, nil
	})
}

// WatchFile is Watch for a file of another kind. renew loads it and puts it in force, unless it has
// not changed and always is false; count is how many of what it has there are.
func WatchFile(
	path, what string, log *slog.Logger, renew func(always bool) (count int, renewed bool,
		err error),
) (*Watcher, error) {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", path, err)
	}
	w := &Watcher{path: path, what: what, log: log, files: files, renew: renew}
	w.state.Store(new(State))
	// First watched and then read, so that no change falls between.
	if err := w.follow(); err != nil {
		files.Close()
		return nil, err
	}
	if err := w.Reload(); err != nil {
		files.Close()
		return nil, err
	}
	w.done.Go(w.watch)
	return w, nil
}

// follow watches where the limits lie: the folder of the path, because editors replace files and a
// ConfigMap a link beside them; the path itself if it is a directory; and where both lead to if
// they are links.
func (w *Watcher) follow() error {
	dirs := []string{filepath.Dir(w.path)}
	if real, err := filepath.EvalSymlinks(w.path); err == nil {
		dirs = append(dirs, filepath.Dir(real))
	}
	if info, err := os.Stat(w.path); err == nil && info.IsDir() { // also one that is empty yet
		dirs = append(dirs, w.path)
	}
	for _, dir := range dirs {
		if err := w.files.Add(dir); err != nil {
			return fmt.Errorf("watching %s: %w", dir, err)
		}
	}
	return nil
}

// Reload loads the path now. On an error, which it also logs unless it is the first load, the set
// in force stays.
func (w *Watcher) Reload() error { return w.load(true) }

// Look loads the path unless it has not changed: what it has depends on something else, which has.
func (w *Watcher) Look() { _ = w.load(false) }

// load loads the path. Unless asked for it is silent if nothing has changed: other files may lie
// beside the limits.
func (w *Watcher) load(asked bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	count, renewed, err := w.read(asked || w.fault != "")
	state := State{OK: err == nil, Last: time.Now()}
	if !renewed {
		state.Last = w.State().Last
	}
	w.state.Store(&state)
	switch {
	case err != nil:
		text := err.Error()
		// the first load has nothing in force, and its caller says what is wrong
		if !state.Last.IsZero() && (asked || text != w.fault) {
			w.log.Error(w.what+" are not loaded; those in force stay", "path", w.path, "error", err)
		}
		w.fault = text
	case renewed:
		w.fault = ""
		w.log.Info(w.what+" are loaded", "path", w.path, w.what, count)
	}
	return err
}

// read renews what is in force, from a path that no pipe may have taken since the first load.
func (w *Watcher) read(always bool) (count int, renewed bool, err error) {
	if !w.State().Last.IsZero() {
		if err := textfile.Again(w.path); err != nil {
			return 0, false, err
		}
	}
	return w.renew(always)
}

// ErrClosed says that nothing is loaded any more.
var ErrClosed = errors.New("the files are not watched any more")

// Close stops watching and waits for a load under way. Nothing is applied after it.
func (w *Watcher) Close() error {
	err := w.files.Close()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return err
}

func (w *Watcher) watch() {
	var first time.Time // of the changes that are not read yet
	due := time.NewTimer(0)
	if !due.Stop() {
		<-due.C
	}
	defer due.Stop()
	for {
		select {
		case _, open := <-w.files.Events:
			if !open {
				return
			}
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			due.Reset(min(settle, patience-now.Sub(first)))
		case err, open := <-w.files.Errors:
			if !open {
				return
			}
			w.log.Warn("watching the limits; they are read again", "path", w.path, "error", err)
			due.Reset(settle)
		case <-due.C:
			first = time.Time{}
			missing := w.follow() // links may lead elsewhere now, and directories be new ones
			w.load(false)         // logs what is wrong
			if missing != nil {
				due.Reset(lookAgain)
			}
		}
	}
}
