package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// world is some nodes. Their catalogs reach each other by calls of functions.
type world struct {
	t        *testing.T
	catalogs map[string]*Catalog
	dir      string

	mu   sync.Mutex
	cut  map[string]bool       // nodes that cannot be reached
	hook func(from, to string) // runs before a message is delivered, without mu
}

type hands struct {
	w    *world
	from string
}

func (h hands) Tell(_ context.Context, to cluster.Member, message []byte) ([]byte, error) {
	h.w.mu.Lock()
	hook, cut := h.w.hook, h.w.cut[to.ID] || h.w.cut[h.from]
	h.w.mu.Unlock()
	if hook != nil {
		hook(h.from, to.ID)
	}
	if cut {
		return nil, errors.New("cut off")
	}
	return h.w.catalogs[to.ID].Answer(message, false)
}

// nobody is a cluster.Network that reaches nobody.
type nobody struct{ cluster.Network }

func newWorld(t *testing.T, names ...string) *world {
	w := &world{t: t, catalogs: map[string]*Catalog{}, dir: t.TempDir(), cut: map[string]bool{}}
	var members []cluster.Member
	for i, name := range names {
		members = append(
			members,
			cluster.Member{
				ID:       name,
				Boot:     uint64(i + 1),
				State:    cluster.StateActive,
				PeerAddr: name,
			},
		)
	}
	for i, name := range names {
		w.catalogs[name] = w.start(name, uint64(i+1), members)
	}
	return w
}

func (w *world) start(name string, boot uint64, members []cluster.Member) *Catalog {
	w.t.Helper()
	n, err := cluster.New(cluster.Config{
		ID: name, Boot: boot, Secret: 1, Clock: stopped{}, Network: nobody{},
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20}),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	v, err := cluster.NewView(name, members)
	if err != nil {
		w.t.Fatal(err)
	}
	n.SetView(v)
	c, err := New(Config{
		Node: n, Network: hands{w, name}, File: filepath.Join(w.dir, name),
		Logger: slog.New(slog.DiscardHandler),
		Now:    func() time.Time { return time.UnixMilli(1000) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

type stopped struct{ cluster.Clock }

func (stopped) Now() limiter.Instant { return 1 }

func (stopped) AfterFunc(time.Duration, func()) func() { return func() {} }

func limit(t testing.TB, name string, n int64) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(
		limiter.Spec{Name: name, Algorithm: limiter.GCRA, Limit: n, Per: time.Hour},
	)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// everywhere demands that all nodes have a limit in force; 0: that none has.
func (w *world) everywhere(name string, want int64) {
	w.t.Helper()
	for id, c := range w.catalogs {
		got := int64(0)
		if l := c.Node.Limits()[name]; l != nil {
			got = l.Limit
		}
		if got != want {
			w.t.Errorf("%s: %s has the limit %d, and not %d", id, name, got, want)
		}
	}
}

var ctx = context.Background()

// Promise: a limit that is put at one node is in force at all, is kept over a restart, and wins
// over files; deleted, the file's is in force again.
func TestPutReachesEveryNode(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	out, err := w.catalogs["n2"].Put(ctx, "ops", limit(t, "x", 5), nil)
	if err != nil || out.Reached != 2 || len(out.Missing) != 0 ||
		out.Version != (Version{1, "n2"}) ||
		out.Replaced {
		t.Fatal(out, err)
	}
	w.everywhere("x", 5)
	w.catalogs["n1"].Node.SetLimits(cluster.Limits{"x": limit(t, "x", 9)})
	w.everywhere("x", 5)
	if _, err := w.catalogs["n1"].Put(ctx, "", limit(t, "a<b>&\u2028", 1), nil); err != nil {
		t.Error(err)
	}
	if w.catalogs["n1"].log.Hashes() != w.catalogs["n2"].log.Hashes() {
		t.Error("an entry that has travelled is another one")
	}
	if h := w.catalogs["n3"].History("x"); len(h) != 1 || h[0].By != "ops" || h[0].AtMs != 1000 {
		t.Error(h)
	}
	w.catalogs["n3"] = w.start("n3", 9, w.catalogs["n1"].Node.View().Members)
	w.everywhere("x", 5)
	if out, err = w.catalogs["n3"].Delete(ctx, "", "x", &out.Version); err != nil {
		t.Fatal(out, err)
	}
	if got := w.catalogs["n1"].Node.Limits()["x"]; got == nil || got.Limit != 9 {
		t.Error("the file's limit is not in force again:", got)
	}
	w.catalogs["n1"].Node.SetLimits(nil)
	w.everywhere("x", 0)
	if _, err = w.catalogs["n1"].Delete(ctx, "", "x", nil); !errors.Is(err, ErrNotPut) {
		t.Error(err)
	}
}

// Promise: of two writers of one limit at once, one wins at all nodes, and the other is told.
func TestTwoWritersAtOnce(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	var begun sync.Mutex // taken once, for good
	var second error
	w.hook = func(_, to string) { // while the first writer's entry is on its way to n2
		if to == "n2" && begun.TryLock() {
			_, second = w.catalogs["n2"].Put(ctx, "bob", limit(t, "x", 2), nil)
		}
	}
	_, first := w.catalogs["n1"].Put(ctx, "ann", limit(t, "x", 1), nil)
	var conflict *ConflictError
	switch {
	case first == nil && second == nil:
		t.Fatal("both writers believe that they have won")
	case first != nil && second != nil:
		t.Fatal("neither writer has won:", first, second)
	case !errors.As(errors.Join(first, second), &conflict) || !conflict.Raced:
		t.Fatal(first, second)
	}
	want := int64(1)
	if first != nil {
		want = 2
	}
	w.everywhere("x", want)
	if conflict.Head.Version != w.catalogs["n3"].Head("x").Version {
		t.Errorf("the loser hears of %s", conflict.Head.Version)
	}
	if !strings.Contains(conflict.Error(), "2") ||
		!strings.Contains(conflict.Error(), "at the same time") {
		t.Error(conflict)
	}
}

// Promise: many writers at all nodes at once, with and without versions: all nodes have one limit
// in force in the end, and a writer that was told that it has won is in the chain of what replaced
// what.
func TestManyWritersAtOnce(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	var each sync.WaitGroup
	var mu sync.Mutex
	won := map[Version]bool{}
	for i := range 9 {
		each.Go(func() {
			out, err := w.catalogs[fmt.Sprint("n", i%3+1)].Put(
				ctx,
				"",
				limit(t, "x", int64(i+1)),
				nil,
			)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won[out.Version] = true
			}
		})
	}
	each.Wait()
	head := w.catalogs["n1"].Head("x")
	for id, c := range w.catalogs {
		if got := c.Head("x"); got.compare(&head) != 0 {
			t.Errorf("%s has %s, and n1 %s", id, got.Version, head.Version)
		}
		if c.log.Hashes() != w.catalogs["n1"].log.Hashes() {
			t.Errorf("%s has another log than n1", id)
		}
	}
	if !won[head.Version] {
		t.Errorf("%s is in force, and its writer was told that it has lost", head.Version)
	}
}

// Promise: a version that is not in force any more is refused, and nothing changes.
func TestStaleVersionIsRefused(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	one, _ := w.catalogs["n1"].Put(ctx, "", limit(t, "x", 1), &Version{})
	if _, err := w.catalogs["n2"].Put(ctx, "", limit(t, "x", 2), &one.Version); err != nil {
		t.Fatal(err)
	}
	var conflict *ConflictError
	for _, expect := range []Version{one.Version, {}} {
		if _, err := w.catalogs["n1"].Put(ctx, "", limit(t, "x", 3), &expect); !errors.As(
			err,
			&conflict,
		) ||
			conflict.Raced {
			t.Error(err)
		}
		if _, err := w.catalogs["n1"].Delete(ctx, "", "x", &expect); !errors.As(err, &conflict) {
			t.Error(err)
		}
	}
	w.everywhere("x", 2)
	if _, err := w.catalogs["n1"].Rollback(ctx, "", "x", one.Version, nil); err != nil {
		t.Error(err)
	}
	w.everywhere("x", 1)
	if _, err := w.catalogs["n1"].Rollback(ctx, "", "x", Version{99, "n1"}, nil); !errors.Is(
		err,
		ErrNoEntry,
	) {
		t.Error(err)
	}
}

// Promise: a node that was cut off hears of changes later, tells its own, and the later change of
// one limit is in force at all.
func TestAfterACut(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.cut["n3"] = true
	out, err := w.catalogs["n1"].Put(ctx, "", limit(t, "x", 1), nil)
	if err != nil || len(out.Missing) != 1 || out.Missing[0] != "n3" || out.Reached != 1 {
		t.Fatal(out, err)
	}
	for i := range 3 {
		if _, err := w.catalogs["n3"].Put(ctx, "", limit(t, "x", int64(30+i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	w.catalogs["n3"].Put(ctx, "", limit(t, "y", 7), nil)
	w.catalogs["n2"].Put(ctx, "", limit(t, "z", 8), nil)
	clear(w.cut)
	w.catalogs["n3"].Catch(ctx)
	w.catalogs["n2"].Catch(ctx)
	w.everywhere("x", 32)
	w.everywhere("y", 7)
	w.everywhere("z", 8)
	if h := w.catalogs["n2"].History("x"); len(h) != 4 {
		t.Errorf("the history lacks what has lost: %v", h)
	}
}

// Promise: a node that has caught up has all limits in force, also if they are more than one
// message has.
func TestAllIsCaughtUpWith(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	var list []Entry
	for i := range MaxLive {
		name := fmt.Sprintf("limit-%04d", i)
		for n := range Kept {
			list = append(list, Entry{
				Name: name, Version: Version{uint64(len(list) + 1), "n1"},
				Limit: Format(limit(t, name, int64(n+1))),
			})
		}
	}
	w.catalogs["n1"].add(list)
	w.catalogs["n2"].Catch(ctx)
	if n := len(w.catalogs["n2"].Node.Limits()); n != MaxLive {
		t.Errorf("%d limits of %d are in force", n, MaxLive)
	}
	if w.catalogs["n1"].log.Hashes() != w.catalogs["n2"].log.Hashes() {
		t.Error("the logs differ")
	}
}

// Promise: the logs of all nodes become the same one, also if the name of a client is no UTF-8.
func TestLogsAreEqualWhateverAClientIsCalled(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	if _, err := w.catalogs["n1"].Put(ctx, "a\xff\xfeb", limit(t, "x", 1), nil); err != nil {
		t.Fatal(err)
	}
	w.catalogs["n1"].Catch(ctx)
	if w.catalogs["n1"].log.Hashes() != w.catalogs["n2"].log.Hashes() {
		t.Errorf("%+v, and at the other node %+v", w.catalogs["n1"].History("x"),
			w.catalogs["n2"].History("x"))
	}
}

// Promise: a change that cannot be saved is refused, and nothing is changed; what another node has
// saved is in force nevertheless, and is saved when that is possible again.
func TestDiskIsFull(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	var logged bytes.Buffer
	w.catalogs["n1"].Logger = slog.New(slog.NewTextHandler(&logged, nil))
	full := filepath.Join(w.dir, "n1")
	if err := os.Mkdir(full+".new", 0o700); err != nil { // no file can be written there
		t.Fatal(err)
	}
	if _, err := w.catalogs["n1"].Put(ctx, "", limit(t, "x", 1), nil); !errors.Is(
		err,
		ErrNotSaved,
	) {
		t.Error(err)
	}
	w.everywhere("x", 0)
	if _, err := w.catalogs["n2"].Put(ctx, "", limit(t, "x", 2), nil); err != nil {
		t.Error(err)
	}
	w.everywhere("x", 2)
	if n := w.catalogs["n1"].SaveErrors(); n != 2 {
		t.Errorf("%d save errors", n)
	}
	if err := os.RemoveAll(full + ".new"); err != nil {
		t.Fatal(err)
	}
	if list, err := read(full); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	w.catalogs["n1"].mu.Lock()
	w.catalogs["n1"].saveLocked()
	w.catalogs["n1"].mu.Unlock()
	if list, err := read(full); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
	if n := strings.Count(logged.String(), "saved again"); n != 1 {
		t.Errorf("the log says %d times that it is saved again:\n%s", n, logged.String())
	}
}

// Promise: a damaged file is refused with a text that says what to do.
func TestDamagedFile(t *testing.T) {
	w := newWorld(t, "n1")
	w.catalogs["n1"].Put(ctx, "", limit(t, "x", 1), nil)
	file := filepath.Join(w.dir, "n1")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{
		{},
		text[:len(text)-2], append([]byte("x"), text...),
		[]byte("penstock limits 1 00000000\nnonsense\n"),
	} {
		os.WriteFile(file, bad, 0o600)
		if c, err := New(Config{Node: w.catalogs["n1"].Node, File: file}); c != nil || err == nil ||
			!strings.Contains(err.Error(), "move it away") &&
				!strings.Contains(err.Error(), "line 2") {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
}

// Promise: what is put is bounded.
func TestPutIsBounded(t *testing.T) {
	w := newWorld(t, "n1")
	c := w.catalogs["n1"]
	c.File = ""
	for i := range MaxLive {
		if _, err := c.Put(ctx, "", limit(t, fmt.Sprint(i), 1), nil); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := c.Put(ctx, "", limit(t, "more", 1), nil); err != ErrManyPut {
		t.Error(err)
	}
	if _, err := c.Delete(ctx, "", "7", nil); err != nil {
		t.Error(err)
	}
	if _, err := c.Put(ctx, "", limit(t, "more", 1), nil); err != nil {
		t.Error(err)
	}
	long := limiter.Spec{Name: "long", Algorithm: limiter.GCRA, Limit: 1, Per: time.Second}
	var overrides []limiter.Override
	for i := range limiter.MaxOverrides {
		overrides = append(
			overrides,
			limiter.Override{Key: fmt.Sprintf("%d%s", i, strings.Repeat("x", 200)), Limit: 2},
		)
	}
	l, err := limiter.New(long, overrides...)
	if err != nil {
		t.Fatal(err)
	}
	var input *cluster.InputError
	if _, err := c.Put(ctx, "", l, nil); !errors.As(err, &input) ||
		!strings.Contains(err.Error(), "at most 16384") {
		t.Error(err)
	}
}

// Promise: what is put is accepted by all nodes, and by its own one after a restart: its size is
// bounded as it is written, where some characters take six bytes.
func TestSizeOfWhatIsPutIsThatOfTheFile(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	spec := limiter.Spec{Name: "long", Algorithm: limiter.GCRA, Limit: 1, Per: time.Second}
	for n := range 70 {
		overrides := make([]limiter.Override, n)
		for i := range overrides {
			key := fmt.Sprint(i, strings.Repeat("<", 200))
			overrides[i] = limiter.Override{Key: key, Limit: 2}
		}
		l, err := limiter.New(spec, overrides...)
		if err != nil {
			t.Fatal(err)
		}
		out, err := w.catalogs["n1"].Put(ctx, "", l, nil)
		if err == nil && w.catalogs["n2"].Head("long").Version != out.Version {
			t.Fatalf("with %d overrides, n2 does not take it over", n)
		}
	}
	w.start("n1", 9, w.catalogs["n1"].Node.View().Members)
}

// Promise: when the last version was given, no file becomes one that its own node refuses.
func TestNoVersionFollowsTheLast(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	text := fmt.Sprintf(`{"entries":[{"name":"x","version":"%d@n2","base":"none"}]}`, maxCounter)
	if _, err := w.catalogs["n1"].Answer([]byte(text), false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.catalogs["n1"].Put(ctx, "", limit(t, "y", 1), nil); err != ErrNoVersion {
		t.Error(err)
	}
	w.start("n1", 9, w.catalogs["n1"].Node.View().Members)
}

// Promise: messages that are no messages are refused, and an agent adds nothing.
func TestAnswerRefuses(t *testing.T) {
	c := newWorld(t, "n1").catalogs["n1"]
	for text, agent := range map[string]bool{
		"": false, "[]": false, `{"hashes":"AAAA"}`: false,
		`{"entries":[{"name":"x","version":"1@n2","base":"none"}]}`: true,
	} {
		if out, err := c.Answer([]byte(text), agent); err == nil {
			t.Errorf("%q: %s", text, out)
		}
	}
	bad := `{"entries":[{"version":"1@n2","base":"none"},
		{"name":"x","version":"none","base":"none"},
		{"name":"x","version":"3@n2","base":"none",
			"limit":{"name":"y","algorithm":"gcra","limit":1,"per":"1s"}},
		{"name":"z","version":"4@n2","base":"none","limit":{"future":1}}]}`
	if _, err := c.Answer([]byte(bad), false); err != nil {
		t.Fatal(err)
	}
	if len(c.Node.Limits()) != 0 || len(c.History("")) != 2 {
		t.Error(c.Node.Limits(), c.History(""))
	}
}
