package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/clock"
	"penstock/rpc/peer"
)

// With --data-dir a node writes what it knows to a file every few seconds, and once more when it
// stops; what it finds there when it starts is a copy to it, as if it were the heir of what it was
// before (cluster/restore.go).
const (
	countersFile = "counters"
	lockFile     = "lock"   // in it is the name of the cluster
	catalogFile  = "limits" // that were put: see package catalog
	// runningFile is there while a node may decide. If it is there when one starts, the node before
	// was not stopped in order, and what was charged since its file was written is not in that.
	runningFile = "running"
	// saveEvery is how long after a file was written the next one is begun, if anything has
	// changed. Of what changed since, kill -9 on all nodes at once forgets.
	saveEvery = 5 * time.Second
	// saveShare bounds the work: a large file is written less often, so that one core spends at
	// most one part in saveShare with it. Time that a slow disk takes is no work.
	saveShare = 20
)

// dataDir is the directory of --data-dir, in use by this process alone.
type dataDir struct {
	path string
	log  *slog.Logger
	lock *os.File

	failed atomic.Uint64 // times that save could not
	begun  sync.Once

	mu      sync.Mutex       // guards below, and makes files one at a time
	saved   uint64           // changes of the node when the file was begun
	head    cluster.FileHead // of the file
	damaged bool             // the file is to be written again, even without changes
	worked  time.Duration    // on the file that was written last
}

// openDataDir makes the directory if need be, and takes it for a node of a cluster.
func openDataDir(path, cluster string, log *slog.Logger) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w; give a directory that this node can write to", err)
	}
	if err := lockForMe(lock); err != nil {
		lock.Close()
		return nil, fmt.Errorf("--data-dir %s is in use by another node (%w); give each its own",
			path, err)
	}
	d := &dataDir{path: path, log: log, lock: lock}
	if err := d.belongTo(cluster); err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

// belongTo notes of which cluster the directory is, and refuses that of another one: its counters
// would count in this cluster, and its limits be put there.
func (d *dataDir) belongTo(cluster string) error {
	name, err := io.ReadAll(io.LimitReader(d.lock, maxName+1))
	switch {
	case err != nil:
		return fmt.Errorf("--data-dir: %w", err)
	case string(name) == cluster:
		return nil
	case len(name) > 0:
		return fmt.Errorf("--data-dir %s is of the cluster %q, and not of %q; give another "+
			"directory, or, if the cluster has another name now, remove %s", d.path, name, cluster,
			d.lock.Name())
	}
	if _, err := d.lock.WriteString(cluster); err != nil { // a full disk is no reason to stay away
		d.log.Warn("the name of the cluster is not noted", "data-dir", d.path, "err",
			errors.Join(err, d.lock.Truncate(0)))
	}
	return nil
}

func (d *dataDir) close() { d.lock.Close() }

// restore has node know what the file says. A file that is cut off or damaged is used as far as it
// is in order; one that is not of this program is an error, so that nothing of somebody else's is
// written over.
func (d *dataDir) restore(node *cluster.Node) error {
	name, head := filepath.Join(d.path, countersFile), &d.head
	_, err := os.Stat(filepath.Join(d.path, runningFile))
	head.Partial = !errors.Is(err, fs.ErrNotExist)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if head.Partial {
			node.Resume(0, *head)
		}
		d.log.Info("no counters on the disk yet", "data-dir", d.path)
		return nil
	}
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	defer f.Close()
	began, entries, broken := time.Now(), 0, 0
	var age time.Duration
	err = peer.ReadSnapshot(f, func(written time.Time, m *cluster.Move) {
		age = time.Since(written)
		peer.AddToHead(head, m)
		taken := node.Restore(age, m.Entries, m.Holds)
		entries, broken = entries+taken, broken+len(m.Entries)+len(m.Holds)-taken
	})
	if errors.Is(err, peer.ErrForeign) {
		return fmt.Errorf("--data-dir: %s: %w; move it away, or give another directory", name, err)
	}
	d.damaged = err != nil || broken > 0
	head.Partial = head.Partial || d.damaged
	node.Resume(age, *head)
	if d.damaged {
		d.log.Warn("counters on the disk are damaged; what is in order is used", "file", name,
			"entries", entries, "broken", broken, "err", err)
	}
	if age < 0 {
		d.log.Warn("counters on the disk are from the future: the clock was set back; they last "+
			"longer by that much", "by", -age)
	}
	d.log.Info("counters restored", "entries", entries, "others", head.Others, "partial",
		head.Partial, "age", age.Round(time.Millisecond), "took",
		time.Since(began).Round(time.Millisecond))
	return nil
}

// begin notes that the node may decide from now on.
func (d *dataDir) begin() {
	d.begun.Do(func() {
		f, err := os.OpenFile(filepath.Join(d.path, runningFile), os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			err = errors.Join(f.Close(), syncDir(d.path))
		}
		if err != nil {
			d.log.Error("it is not noted that this node runs: if it is killed, the next one may "+
				"not mark what its counters lack", "data-dir", d.path, "err", err)
		}
	})
}

// end saves the counters of a node that has stopped in order.
func (d *dataDir) end(node *cluster.Node, clock *clock.Clock) error {
	if err := d.save(node, clock); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(d.path, runningFile)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, syncDir(d.path))
	}
	return nil
}

// save writes the file, unless nothing has changed since the last time. A reader sees the old file
// or the new one.
func (d *dataDir) save(node *cluster.Node, clock *clock.Clock) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() {
		if err != nil {
			d.failed.Add(1)
		}
	}()
	changes, head := node.Stats().Changes(), node.FileHead()
	head.Secret = cmp.Or(head.Secret, d.head.Secret) // 0: the cluster is not found yet
	if changes == d.saved && head.Same(&d.head) && !d.damaged {
		return nil
	}
	name := filepath.Join(d.path, countersFile)
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	began := time.Now()
	entries, err := d.write(f, &head, node.Table(), node.Book(), clock)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return err
	}
	d.saved, d.head, d.damaged = changes, head, false
	d.log.Debug("counters saved", "entries", entries, "took", time.Since(began))
	return syncDir(d.path)
}

// write writes a file, and notes for how long this process has worked on it: the time of the disk
// does not postpone the next file.
func (d *dataDir) write(
	f io.Writer, head *cluster.FileHead, table *limiter.Table, book *limiter.Ledger,
	clock *clock.Clock,
) (entries int, err error) {
	began, disk := time.Now(), slowWriter{Writer: f}
	entries, err = peer.WriteSnapshot(&disk, head, table, book, clock)
	d.worked = time.Since(began) - disk.took
	return entries, err
}

// slowWriter measures how long its Writer takes.
type slowWriter struct {
	io.Writer
	took time.Duration
}

// Write is that of the Writer.
func (w *slowWriter) Write(b []byte) (int, error) {
	began := time.Now()
	n, err := w.Writer.Write(b)
	w.took += time.Since(began)
	return n, err
}

// pause is how long after the file was written the next one is begun.
func (d *dataDir) pause() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(saveEvery, saveShare*d.worked)
}

// syncDir has a rename in the directory outlive a loss of power, where the system can do that.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = dir.Sync() // not all file systems know it
	return dir.Close()
}

// keepSaving writes the file again and again until the node leaves.
func (d *dataDir) keepSaving(leaving context.Context, node *cluster.Node, clock *clock.Clock) {
	for wait := saveEvery; ; {
		sleep(leaving, wait)
		if leaving.Err() != nil {
			return
		}
		if err := d.save(node, clock); err != nil {
			d.log.Error("counters are not saved; the file from before stays", "data-dir",
				d.path, "err", err)
		}
		wait = d.pause()
	}
}
