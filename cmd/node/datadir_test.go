package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/peer"
)

// kept are three processes with a directory each, and some keys that have been charged.
type kept struct {
	t      *testing.T
	limits string
	dirs   []string
	nodes  []*process
	binary string // of the next start; empty: that of this tree

	admitted [keptKeys]int64 // of each key, for all that clients were told
}

const keptKeys = 500

// start starts all three at once; the first begins the cluster.
func (k *kept) start() {
	k.t.Helper()
	k.nodes = k.nodes[:0]
	for i, dir := range k.dirs {
		args := []string{"--limits", k.limits, "--data-dir", dir}
		if i > 0 {
			args = append(args, "--join", k.nodes[0].gossip)
		}
		k.nodes = append(k.nodes, serveWith(k.t, fmt.Sprintf("n%d", i+1), k.choose, args...))
	}
	for _, p := range k.nodes {
		waitForMembers(k.t, p, len(k.dirs))
	}
}

// choose has a process run the chosen binary.
func (k *kept) choose(c *exec.Cmd) {
	if k.binary != "" {
		c.Path = k.binary
	}
}

// stop has all of them end by s.
func (k *kept) stop(s os.Signal) {
	k.t.Helper()
	for _, p := range k.nodes {
		if err := p.cmd.Process.Signal(s); err != nil {
			k.t.Error(err)
		}
	}
	for _, p := range k.nodes {
		if code := p.exitCode(k.t); code != 0 && s == syscall.SIGTERM {
			k.t.Errorf("%s ends with exit code %d", p.name, code)
		}
	}
}

// ask asks the first node about every key until no answer is degraded, and returns what is left of
// each.
func (k *kept) ask(cost int64) (remaining []int64) {
	k.t.Helper()
	return k.askUntil("answers stay degraded", cost, func(d *penstockv1.Decision) bool {
		return !d.Degraded
	})
}

// askUntil asks the first node about every key until all answers are good.
func (k *kept) askUntil(
	problem string, cost int64, good func(d *penstockv1.Decision) bool,
) (remaining []int64) {
	k.t.Helper()
	to := dial(k.t, k.nodes[0])
	var items []*penstockv1.Item
	for i := range keptKeys {
		items = append(items, &penstockv1.Item{
			Limit: "big", Key: fmt.Appendf(nil, "kept-%d", i),
			Cost: &cost,
		})
	}
	for range 100 {
		ctx, cancel := context.WithTimeout(k.t.Context(), 10*time.Second)
		decisions, err := checkItems(ctx, to, items)
		cancel()
		if err != nil {
			k.t.Fatal(err)
		}
		remaining, items = remaining[:0], items[:len(decisions)]
		bad := 0
		for i, d := range decisions {
			remaining = append(remaining, d.Remaining)
			if d.Allowed {
				k.admitted[i] += cost
			}
			if !good(d) {
				bad++
			}
		}
		if bad == 0 {
			return remaining
		}
		time.Sleep(100 * time.Millisecond)
	}
	k.t.Fatal(problem)
	return nil
}

// wantCharged waits until all that was admitted is charged, and nothing else: what was admitted
// before anybody could decide is charged a moment later.
func (k *kept) wantCharged(when string) {
	k.t.Helper()
	wrong := func() (key int, left int64) {
		for i, left := range k.ask(0) {
			if left != 10000-k.admitted[i] {
				return i, left
			}
		}
		return -1, 0
	}
	for range 50 {
		if key, _ := wrong(); key < 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	if key, left := wrong(); key >= 0 {
		k.t.Fatalf("%s %d of 10000 are left of key %d; %d were admitted", when, left, key,
			k.admitted[key])
	}
}

// onDisk counts the keys that are in one of the files.
func (k *kept) onDisk() int {
	found := map[string]bool{}
	for _, dir := range k.dirs {
		f, err := os.Open(filepath.Join(dir, countersFile))
		if err != nil {
			continue
		}
		err = peer.ReadSnapshot(f, func(_ time.Time, m *cluster.Move) {
			for _, e := range m.Entries {
				found[strings.Clone(e.Key)] = true
			}
		})
		if f.Close(); err != nil {
			k.t.Errorf("a file is not whole while nodes are at work: %v", err)
		}
	}
	return len(found)
}

// secret is what the files have; 0: they do not agree.
func (k *kept) secret() (secret cluster.Secret) {
	for i, dir := range k.dirs {
		f, err := os.Open(filepath.Join(dir, countersFile))
		if err != nil {
			k.t.Fatal(err)
		}
		own := cluster.Secret(0)
		err = peer.ReadSnapshot(f, func(_ time.Time, m *cluster.Move) { own += m.Secret })
		if f.Close(); err != nil {
			k.t.Error(err)
		}
		if i > 0 && own != secret {
			return 0
		}
		secret = own
	}
	return secret
}

// Promise (--data-dir): counters survive a restart of every node. A clean stop forgets nothing,
// kill -9 nothing that is older than the file.
func TestCountersSurviveARestartOfEveryNode(t *testing.T) {
	t.Parallel()
	k := &kept{t: t, limits: write(t, testLimits)}
	for range 3 {
		k.dirs = append(k.dirs, filepath.Join(t.TempDir(), "counters of a node"))
	}
	k.start()
	if k.ask(2500); slices.Max(k.admitted[:]) > 2500 { // some keys have no deciding node
		k.wantCharged("after the first start")
	}
	k.stop(syscall.SIGTERM) // at once: what was charged is on the disk of one node only
	secret := k.secret()
	if n := k.onDisk(); n != keptKeys {
		t.Errorf("after a clean stop %d of %d keys are on a disk", n, keptKeys)
	}

	k.start()
	k.ask(2500)
	k.wantCharged("after SIGTERM and a restart")
	for deadline := time.Now().Add(60 * time.Second); k.onDisk() < keptKeys &&
		time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	k.stop(syscall.SIGKILL)
	if again := k.secret(); secret == 0 || again != secret {
		t.Errorf("the cluster began under the secret %d, and goes on under %d", uint64(secret),
			uint64(again))
	}

	k.start()
	marked := func(d *penstockv1.Decision) bool {
		return d.Degraded && d.Bound == 10000 && d.Source != penstockv1.Source_SOURCE_FALLBACK
	}
	for i, left := range k.askUntil("owners do not say that counters may be lacking", 0, marked) {
		if left > 7500 { // at least what the file had when they were started for the second time
			t.Fatalf("after kill -9 and a restart %d of 10000 are left of key %d", left, i)
		}
	}
}

// A directory belongs to one node at a time; the next one hears why it cannot have it.
func TestDataDirIsOneNodes(t *testing.T) {
	dir := t.TempDir()
	d, err := openDataDir(dir, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDataDir(dir, "test", slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "is in use by another node") {
		t.Errorf("the directory is given twice: %v", err)
	}
	d.close()
	if d, err = openDataDir(dir, "test", slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("a directory that nobody uses any more: %v", err)
	} else {
		d.close()
	}
}

// Promise: a directory of another cluster is refused, with all that is in it: its counters would
// count, and its limits be put, in this one.
func TestDataDirIsOneClusters(t *testing.T) {
	dir := t.TempDir()
	r, _ := startKept(t, dir)
	r.take(t, 3)
	r.stop(t.Context(), time.Nanosecond)
	before, _ := os.ReadFile(filepath.Join(dir, countersFile))
	s, err := selfSettings(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster, s.Role, s.Memory, s.Gossip, s.Peer, s.DataDir = "other", "member", 8<<20, "off",
		"off", dir
	other, err := start(t.Context(), s, slog.New(slog.DiscardHandler))
	if err == nil {
		other.stop(t.Context(), time.Nanosecond)
	}
	if err == nil || !strings.Contains(err.Error(),
		`is of the cluster "test", and not of "other"`) {
		t.Errorf("the directory of another cluster: %v", err)
	}
	after, _ := os.ReadFile(filepath.Join(dir, countersFile))
	if !bytes.Equal(before, after) {
		t.Error("the file of the other cluster has changed")
	}
	r, _ = startKept(t, dir)
	defer r.stop(t.Context(), time.Nanosecond)
	if keys := r.node.Table().Stats().Keys; keys != 3 {
		t.Errorf("%d of 3 keys are there in the cluster of before", keys)
	}
}

// Promise: a damaged file costs what is damaged and not the start; what is whole is written anew.
func TestDamagedCountersAreUsedAsFarAsTheyGo(t *testing.T) {
	dir := t.TempDir()
	r, _ := startKept(t, dir)
	r.take(t, 300)
	r.stop(t.Context(), time.Nanosecond)
	file := filepath.Join(dir, countersFile)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, whole[:len(whole)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	r, said := startKept(t, dir)
	if keys := r.node.Table().Stats().Keys; keys != 300 {
		t.Errorf("%d of 300 keys are read of a file that lacks its end", keys)
	}
	r.stop(t.Context(), time.Nanosecond)
	for _, want := range []string{
		"counters on the disk are damaged",
		"ends in the middle of the record at byte",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, said.String())
		}
	}
	// A record is as long as its counters are large, so the file that is saved now has a length of
	// its own.
	r, said = startKept(t, dir)
	defer r.stop(t.Context(), time.Nanosecond)
	if keys := r.node.Table().Stats().Keys; keys != 300 ||
		strings.Contains(said.String(), "damaged") {
		t.Errorf("the file is not whole again: %d of 300 keys are read of it\n%s", keys,
			said.String())
	}
}

// Promise: --data-dir keeps the secret of the cluster, also in a file that is written before the
// node has found its cluster again.
func TestSecretOutlivesAWaitForTheCluster(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	file := filepath.Join(dir, countersFile)
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	var b bytes.Buffer
	head := cluster.FileHead{Others: []string{"n2"}, Secret: 77}
	if _, err := peer.WriteSnapshot(&b, &head, table, limiter.NewLedger(table, nil),
		clock.New()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes()[:b.Len()-1], 0o600); err != nil { // its end is missing
		t.Fatal(err)
	}
	now := clock.New()
	node, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: now, Table: table,
		Network: peer.NewLines(peer.LinesConfig{ID: "n1", Boot: 1, Cluster: "test", Clock: now}),
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDataDir(dir, "test", log)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := errors.Join(d.restore(node), d.save(node, now)); err != nil {
		t.Fatal(err)
	}
	again, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	var read cluster.FileHead
	err = peer.ReadSnapshot(again, func(_ time.Time, m *cluster.Move) { peer.AddToHead(&read, m) })
	if err != nil || !read.Same(&head) {
		t.Errorf("the file says %+v, %v; want n2 and 77", read, err)
	}
}

// Promise: a file that is cut off in its first line costs what it had and not the start; somebody
// else's is not written over.
func TestCountersWithoutTheirBeginning(t *testing.T) {
	for text, foreign := range map[string]bool{
		"": false, "penstock cou": false, "penstock counters 2": true, "#!/bin/sh\n": true,
	} {
		dir, said := t.TempDir(), ""
		file := filepath.Join(dir, countersFile)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, book, err := tryKept(t, dir)
		if err == nil {
			r.waitReady(t)
			said = book.String()
			r.stop(t.Context(), time.Nanosecond)
		}
		now, _ := os.ReadFile(file)
		if foreign != (err != nil) || foreign != (string(now) == text) ||
			!foreign && !strings.Contains(said, "counters on the disk are damaged") {
			t.Errorf("%q: started with %v; the file has %.30q then", text, err, now)
		}
	}
}

// frozen is a disk on which every write takes a minute.
type frozen struct{}

func (frozen) Write(b []byte) (int, error) {
	time.Sleep(time.Minute)
	return len(b), nil
}

// Promise: counters are written every few seconds: a disk that stood still for a while does not
// have the next file wait for hours.
func TestSlowDiskPostponesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
		began, d := time.Now(), new(dataDir)
		if _, err := d.write(frozen{}, &cluster.FileHead{}, table, limiter.NewLedger(table, nil),
			clock.New()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Minute || d.pause() != saveEvery {
			t.Errorf("after a write of %v the next one is in %v, want %v", took, d.pause(),
				saveEvery)
		}
		d.worked = time.Second
		if d.pause() != saveShare*time.Second {
			t.Errorf("after a second of work the next file is begun in %v", d.pause())
		}
	})
}

// A disk that is full, or gone, costs the file and nothing else.
func TestCountersThatCannotBeSaved(t *testing.T) {
	dir := t.TempDir()
	r, _ := startKept(t, dir)
	r.take(t, 3)
	if err := r.data.save(r.node, r.clock); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(dir, countersFile))
	if err := os.Mkdir(filepath.Join(dir, countersFile+".new"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.take(t, 3)
	if err := r.data.save(r.node, r.clock); err == nil {
		t.Error("a file that cannot be written is said to be saved")
	}
	r.take(t, 3)
	after, _ := os.ReadFile(filepath.Join(dir, countersFile))
	if string(after) != string(before) {
		t.Error("the file from before has changed")
	}
	r.stop(t.Context(), time.Nanosecond)
}

// startKept starts a node alone, with the directory dir.
func startKept(t *testing.T, dir string) (*running, *logBook) {
	t.Helper()
	r, book, err := tryKept(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	r.waitReady(t)
	return r, book
}

// tryKept is startKept for a directory with which a node may refuse to start.
func tryKept(t *testing.T, dir string) (*running, *logBook, error) {
	t.Helper()
	s, err := selfSettings(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster, s.Role, s.Memory, s.Gossip, s.Peer, s.DataDir = "test", "member", 8<<20, "off",
		"off", dir
	book := new(logBook)
	r, err := start(t.Context(), s, slog.New(slog.NewTextHandler(book, nil)))
	return r, book, err
}

// Promise: what is forgotten is said. A directory knows whether the node before was stopped in
// order, from its first moment on.
func TestDirectoryKnowsOfAKill(t *testing.T) {
	dir := t.TempDir()
	killed := func(when string, dir string, want bool) *running {
		t.Helper()
		r, _ := startKept(t, dir)
		out := make([]cluster.Decision, 1)
		err := r.node.Check(&cluster.Request{Items: []cluster.Item{{
			Inline: keptLimit(t), Key: "k", Cost: 1,
		}}}, out)
		if err != nil || out[0].Degraded != want {
			t.Errorf("%s: %+v, %v", when, out[0], err)
		}
		return r
	}
	// what a kill leaves behind
	leaves := func() string {
		left := t.TempDir()
		if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		return left
	}
	r := killed("a new directory", dir, false)
	never := leaves()
	if err := r.data.save(r.node, r.clock); err != nil {
		t.Fatal(err)
	}
	saved := leaves()
	r.stop(t.Context(), time.Nanosecond)
	r = killed("after a stop", dir, false)
	again := leaves()
	r.stop(t.Context(), time.Nanosecond)
	for when, dir := range map[string]string{
		"killed before a file was written": never, "killed after that": saved,
		"killed at once after a start": again,
	} {
		killed(when, dir, true).stop(t.Context(), time.Nanosecond)
	}
}

// take takes one unit from each of many keys.
func (r *running) take(t *testing.T, keys int) {
	t.Helper()
	limit := keptLimit(t)
	for i := range keys {
		out := make([]cluster.Decision, 1)
		err := r.node.Check(&cluster.Request{Items: []cluster.Item{{
			Inline: limit,
			Key:    fmt.Sprint("key-", i), Cost: 1,
		}}}, out)
		if err != nil || !out[0].Allowed {
			t.Fatalf("key %d: %+v, %v", i, out[0], err)
		}
	}
}

// shiftFile makes a file of counters look as if it had been written d later.
func shiftFile(t *testing.T, file string, d time.Duration) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := bytes.IndexByte(b, '\n') + 1; at < len(b); {
		body := b[at+8 : at+8+int(binary.LittleEndian.Uint32(b[at:]))]
		binary.LittleEndian.PutUint64(body, binary.LittleEndian.Uint64(body)+uint64(d))
		binary.LittleEndian.PutUint32(b[at+4:],
			crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		at += 8 + len(body)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a step of the wall clock does between a stop and a start: set back, counters last longer and
// the log says so; set forward, they age, which nothing on the machine can tell from time that has
// gone by.
func TestClockStepsBetweenStopAndStart(t *testing.T) {
	for _, x := range []struct {
		step time.Duration // of the clock
		left int64         // of a limit of 10 an hour, of which one was taken
		said string
	}{
		{-3 * time.Hour, 9, "from the future"},
		{30 * time.Minute, 9, "counters restored"},
		{2 * time.Hour, 10, "counters restored"},
	} {
		dir := t.TempDir()
		r, _ := startKept(t, dir)
		r.take(t, 1)
		r.stop(t.Context(), time.Nanosecond)
		shiftFile(t, filepath.Join(dir, countersFile), -x.step)
		r, said := startKept(t, dir)
		out := make([]cluster.Decision, 1)
		item := cluster.Item{Inline: keptLimit(t), Key: "key-0", Op: cluster.OpPeek}
		if err := r.node.Check(&cluster.Request{Items: []cluster.Item{item}}, out); err != nil ||
			out[0].Remaining != x.left {
			t.Errorf("after a step of %v: %+v, %v; want %d left", x.step, out[0], err, x.left)
		}
		if !strings.Contains(said.String(), x.said) {
			t.Errorf("after a step of %v the log does not say %q:\n%s", x.step, x.said, said)
		}
		r.stop(t.Context(), time.Nanosecond)
	}
}

func keptLimit(t *testing.T) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(limiter.Spec{
		Name: "inline", Algorithm: limiter.FixedWindow,
		Anchor: limiter.FirstHit, Limit: 10, Per: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Promise (--data-dir): reservations survive a restart of every node, with their deadlines.
func TestHoldsSurviveARestartOfEveryNode(t *testing.T) {
	t.Parallel()
	k := &kept{t: t, limits: write(t, testLimits)}
	for range 3 {
		k.dirs = append(k.dirs, t.TempDir())
	}
	k.start()
	const keys = 9
	var ids []string
	for i := range keys {
		for _, ttl := range []int{600_000, 1000} {
			body := fmt.Sprintf(
				`{"limit":"big","key":"kept-%d","cost":4000,"ttl_ms":%d,"holder":"me"}`, i, ttl)
			if hold := post[heldJSON](t, k.nodes[i%3], "/v1/reserve", body); hold.ID == "" ||
				hold.Remaining > 6000 {
				t.Fatalf("%+v", hold)
			} else if ttl > 1000 {
				ids = append(ids, hold.ID)
			}
		}
	}
	k.stop(syscall.SIGTERM)
	k.start()
	for i, left := range k.ask(0)[:keys] {
		if left != 2000 {
			t.Errorf("%d of 10000 are left of key %d, of which 2 x 4000 were reserved", left, i)
		}
	}
	for i, id := range ids {
		for range 2 { // again is once
			body := fmt.Sprintf(`{"id":%q,"actual":500,"holder":"me"}`, id)
			if d := post[heldJSON](t, k.nodes[(i+1)%3], "/v1/settle", body); d.Remaining != 5500 {
				t.Errorf("key %d, settled with 500: %+v", i, d)
			}
		}
	}
}

// heldJSON is what doors answer about a hold, as far as it is looked at here.
type heldJSON struct {
	ID        string
	Allowed   bool
	Remaining int64
}

// post sends body to p until the answer is not degraded.
func post[T any](t *testing.T, p *process, path, body string) (answer T) {
	t.Helper()
	for range 100 {
		r, err := http.Post("http://"+p.http+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s %s, %v", path, body, r.Status, text, err)
		}
		if !bytes.Contains(text, []byte(`"degraded":true`)) {
			if err := json.Unmarshal(text, &answer); err != nil {
				t.Fatal(err)
			}
			return answer
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s %s: answers stay degraded", path, body)
	return answer
}
