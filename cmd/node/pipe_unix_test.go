//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Promise: a pipe in the place of a file that is read again is a faulty file. The settings in force
// stay, the good file is taken over when it is back, and a node that stops does not wait for the
// pipe.
func TestPipeInThePlaceOfAFile(t *testing.T) {
	dir := t.TempDir()
	limits, tokens := filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "tokens")
	putFile(t, limits, testLimits)
	const first, second = "the-first-token-of-two", "the-second-token-of-two"
	putFile(t, tokens, first)
	r, _ := startNode(t, func(s *settings) {
		s.Limits, s.AuthTokenFile, s.HTTP = limits, tokens, "127.0.0.1:0"
	})
	inForce := func(want bool) func() error {
		return func() error {
			if ok, _ := r.files.lastReload(); ok != want {
				return fmt.Errorf("the files are taken over: %t", ok)
			}
			return nil
		}
	}
	for path, text := range map[string]string{limits: testLimits, tokens: second} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skip(err)
		}
		writer, err := os.OpenFile(path, os.O_RDWR, 0) // it says nothing, and does not end
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		eventually(t, "the pipe is refused", inForce(false))
		fresh := path + ".new"
		putFile(t, fresh, text)
		if err := os.Rename(fresh, path); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the file that is back is taken over", inForce(true))
	}
	for token, want := range map[string]int{first: 401, second: 200} {
		eventually(t, "tokens are those of the file that is back", func() error {
			if code, _ := askAs(t, r, token, "/v1/members"); code != want {
				return fmt.Errorf("%s: %d, want %d", token, code, want)
			}
			return nil
		})
	}
	if err := os.Remove(tokens); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(tokens, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(tokens, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if r.stop(ctx, 0); ctx.Err() != nil {
		t.Error("a node that stops waits for a pipe")
	}
}
