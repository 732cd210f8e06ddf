//go:build linux

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Promise: a file that a verb rewrites stays its owner's, with its mode, and a link to it stays a
// link: a node that runs as another user goes on reading it.
func TestRewrittenFilesKeepTheirOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	const owner, group = 65532, 65531
	dir := t.TempDir()
	key, limits := filepath.Join(dir, "gossip.key"), filepath.Join(dir, "limits.yaml")
	out, code := runVerb(t, "keygen", "--out", key)
	if code != 0 {
		t.Fatal(out)
	}
	putFile(t, limits, triedLimits)
	for _, file := range []string{key, limits} {
		if err := os.Chown(file, owner, group); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, file+".link"); err != nil {
			t.Fatal(err)
		}
	}
	for file, words := range map[string][]string{
		key:    {"keygen", "--rotate", "add", "--out", key + ".link"},
		limits: {"limits", "promote", "login", "--file", limits + ".link"},
	} {
		if out, code := runVerb(t, words...); code != 0 {
			t.Fatal(words, out)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		is := info.Sys().(*syscall.Stat_t)
		if is.Uid != owner || is.Gid != group || info.Mode().Perm() != 0o600 {
			t.Errorf("%v: user %d, group %d, mode %v", words, is.Uid, is.Gid, info.Mode())
		}
		if link, err := os.Lstat(file + ".link"); err != nil ||
			link.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%v: the link is %v, %v", words, link, err)
		}
	}
}
