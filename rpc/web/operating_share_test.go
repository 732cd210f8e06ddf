package web

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// kept is an answer, with its status if it has come, and whether its writing fails.
type kept struct {
	*httptest.ResponseRecorder
	status atomic.Int64
	fails  atomic.Bool
}

func (k *kept) WriteHeader(status int) { k.status.Store(int64(status)) }

func (k *kept) SetWriteDeadline(time.Time) error {
	k.fails.Store(true)
	return nil
}

// asked are requests to a page that begins its answers with some bytes, and ends them when it may.
type asked struct {
	page http.HandlerFunc
	end  chan struct{}
	all  sync.WaitGroup
}

func newAsked(most, bytes int) *asked {
	a := &asked{end: make(chan struct{})}
	o := newOperating(most, func(r *http.Request) string { return r.RemoteAddr })
	a.page = o.bounded(func(rw http.ResponseWriter, r *http.Request) {
		if bytes > 0 && r.RemoteAddr != "maker" {
			rw.Write(make([]byte, bytes))
		}
		<-a.end
		rw.WriteHeader(http.StatusNoContent)
	})
	return a
}

// by has a client ask, and returns the answer, which may not have come yet.
func (a *asked) by(client string) *kept {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = client
	k := &kept{ResponseRecorder: httptest.NewRecorder()}
	a.all.Go(func() { a.page(k, r) })
	synctest.Wait()
	return k
}

// Promise: of the long answers under way, one client has no more than its share, and as many of its
// requests wait; another client is answered meanwhile. What waits in vain is refused.
func TestAnswersOfAClientLeaveRoom(t *testing.T) {
	const most, share = 4, 3
	synctest.Test(t, func(t *testing.T) {
		a := newAsked(most, 0)
		var greedy []*kept
		for range share + most + 2 {
			greedy = append(greedy, a.by("greedy"))
		}
		for i, k := range greedy {
			refused := k.status.Load() == http.StatusTooManyRequests
			if refused != (i >= share+most) || k.fails.Load() && !refused {
				t.Errorf("request %d: status %d, fails %v", i, k.status.Load(), k.fails.Load())
			}
		}
		polite := a.by("polite")
		for range share + 1 { // those that are under way, in the order in which they began
			a.end <- struct{}{}
		}
		synctest.Wait()
		if status := polite.status.Load(); status != http.StatusNoContent {
			t.Errorf("a polite client has status %d beside a greedy one", status)
		}
		time.Sleep(operatingWait)
		synctest.Wait()
		refused := 0
		for _, k := range greedy {
			if k.status.Load() == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused != most-share+2 { // of those that waited, as many as share have begun
			t.Errorf("%d requests are refused, want %d", refused, most-share+2)
		}
		close(a.end)
		a.all.Wait()
	})
}

// Promise: a client that has its share of the long answers, or of their bytes, and asks for more,
// ends no answer to another client.
func TestGreedyClientEndsNoAnswersOfOthers(t *testing.T) {
	for name, greedy := range map[string]struct {
		client string
		bytes  int
	}{
		"requests that are worked on": {"maker", 1}, "answers that are sent": {"sender", 1},
		"long answers": {"sender", mostUnread / 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAsked(8, greedy.bytes)
				a.by(greedy.client)
				polite := a.by("polite")
				for range 12 {
					a.by(greedy.client)
				}
				if polite.fails.Load() {
					t.Error("the answer to another client is given up")
				}
				if late := a.by("late"); late.fails.Load() {
					t.Error("another client is hurried")
				}
				close(a.end)
				a.all.Wait()
			})
		})
	}
}

// Promise: the connection of a request that finds no room hears so at once, and is not closed at
// once: a client that does not listen would come back without a pause.
func TestRefusedConnectionIsLeft(t *testing.T) {
	states := make(chan http.ConnState, 9)
	s := httptest.NewUnstartedServer(http.HandlerFunc(refuse))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) { states <- state }
	s.Start()
	defer s.Close()
	answer, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusTooManyRequests || !answer.Close {
		t.Errorf("%s, closing %v", answer.Status, answer.Close)
	}
	for state := range states { // the answer comes first
		if state == http.StateHijacked {
			return
		}
		if state == http.StateClosed {
			t.Fatal("the connection is closed at once")
		}
	}
}

// Promise: answers that are sent and not read have bounded memory: the oldest are given up.
func TestUnreadBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsked(mostLists, mostUnread/2)
		first, second, third := a.by("one"), a.by("two"), a.by("three")
		if !first.fails.Load() || second.fails.Load() || third.fails.Load() {
			t.Errorf("fail %v, %v, %v; want the first alone to fail", first.fails.Load(),
				second.fails.Load(), third.fails.Load())
		}
		close(a.end)
		a.all.Wait()
	})
}
