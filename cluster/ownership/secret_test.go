package ownership

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Promise: no log, error or page shows the secret of a cluster, whatever prints it.
func TestSecretIsNotPrinted(t *testing.T) {
	const secret = Secret(0xfeedfacecafebeef)
	c := Configuration{Secret: secret}
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("text", "secret", secret, "config", c)
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %d %x %X %s %q %+v %#v %v %v %s", secret, secret, secret, secret,
		secret, secret, c, c, &c, fmt.Errorf("of %v", secret), asJSON) + log.String()
	for _, form := range []string{fmt.Sprint(uint64(secret)), "feedface", "FEEDFACE"} {
		if strings.Contains(text, form) {
			t.Errorf("%s is shown in %s", form, text)
		}
	}
	if !strings.Contains(text, "a secret") {
		t.Errorf("no text says that there is one: %s", text)
	}
}

// Promise: all that descends from a configuration has its secret: members that come and go, the
// half of a pair that goes on, a child of lost voters, what an operator recovers, and what a boot
// founds anew when its cluster is gone.
func TestSecretIsKept(t *testing.T) {
	const secret = Secret(77)
	for name, play := range map[string]func(w *world){
		"founded":     func(*world) {},
		"a newcomer":  func(w *world) { w.start("d", "a", "d") },
		"one of many": func(w *world) { w.kill("c") },
		"a pair": func(w *world) {
			w.kill("c")
			w.run(5 * second)
			w.kill("b")
		},
		"a child of lost voters": func(w *world) {
			w.kill("b")
			w.kill("c")
		},
		"recovered": func(w *world) {
			w.node("b").up, w.node("c").up = false, false
			w.run(5 * second)
			w.step(w.node("a"), Recover{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1, 3)
			for _, id := range []string{"a", "b", "c"} {
				n := w.start(id, "a", "b", "c")
				e := Of(n.electors...)
				e.Secret = secret
				w.step(n, e)
			}
			w.run(2 * second)
			epoch := w.node("a").s.Config().Epoch
			play(w)
			w.run(10 * second)
			a := w.node("a").s
			c := a.Config()
			if a.Stage() != StageJoined || !a.Deciding(w.node("a").clock(w.now)) ||
				(c.Epoch == epoch) != (name == "founded") {
				t.Fatalf("a is %v in %v after %v", a.Stage(), c, epoch)
			}
			if c.Secret != secret {
				t.Errorf("%v has another secret", c)
			}
			if next := a.Next(99); next.origin.elect.Secret != secret {
				t.Error("the next boot of a would found a cluster with another secret")
			}
		})
	}
}
