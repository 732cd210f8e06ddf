package policy

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a change waits for others: an editor or a ConfigMap makes several of one.
const settle = 100 * time.Millisecond

// Watcher keeps the limits of a path up to date.
type Watcher struct {
	path  string
	log   *slog.Logger
	apply func(*Set)
	files *fsnotify.Watcher
	done  sync.WaitGroup

	mu sync.Mutex // held while a set is loaded and applied: sets are applied in the order in which they were read
}

// Watch loads path, hands the set to apply, and does so again whenever the path changes, until Close. If the first load
// fails Watch fails; if a later one fails the error is logged and the set in force stays. apply is called by one
// goroutine at a time.
func Watch(path string, log *slog.Logger, apply func(*Set)) (*Watcher, error) {
	w := &Watcher{path: path, log: log, apply: apply}
	if err := w.Reload(); err != nil {
		return nil, err
	}
	var err error
	if w.files, err = fsnotify.NewWatcher(); err != nil {
		return nil, fmt.Errorf("watching %s: %w", path, err)
	}
	// The folder of a file is watched and not the file: editors replace a file, and a ConfigMap replaces a link beside
	// it. A directory is watched itself; what it links to stands in it too.
	dirs := []string{filepath.Dir(path), path}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		dirs = dirs[:1]
	}
	for _, dir := range dirs {
		if err := w.files.Add(dir); err != nil {
			w.files.Close()
			return nil, fmt.Errorf("watching %s: %w", dir, err)
		}
	}
	w.done.Go(w.watch)
	return w, nil
}

// Reload loads the path now. On an error, which it also logs, the set in force stays.
func (w *Watcher) Reload() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	set, err := Load(w.path)
	if err != nil {
		w.log.Error("limits are not loaded; those in force stay", "path", w.path, "error", err)
		return err
	}
	w.log.Info("limits are loaded", "path", w.path, "limits", len(set.Limits))
	w.apply(set)
	return nil
}

// Close stops watching and waits for a load under way.
func (w *Watcher) Close() error {
	err := w.files.Close()
	w.done.Wait()
	return err
}

func (w *Watcher) watch() {
	var settled <-chan time.Time
	for {
		select {
		case _, open := <-w.files.Events:
			if !open {
				return
			}
			if settled == nil {
				settled = time.After(settle)
			}
		case err, open := <-w.files.Errors:
			if !open {
				return
			}
			w.log.Warn("watching the limits", "path", w.path, "error", err)
		case <-settled:
			settled = nil
			w.Reload() //nolint:errcheck // logged there
		}
	}
}
