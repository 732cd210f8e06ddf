package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"penstock/bench/history/judge"
)

// secrets are the keys and certificates of a cluster. Each node has copies of its own, and reads
// them again when they change.
type secrets struct {
	binary, dir string
	authorities int // that there have been; the last one issues
}

const gossipKey = "gossip.key"

// newSecrets makes what the first nodes need.
func newSecrets(binary, dir string) (*secrets, error) {
	s := &secrets{binary: binary, dir: filepath.Join(dir, "secrets")}
	err := os.MkdirAll(s.dir, 0o700)
	if err == nil {
		err = s.penstock("keygen", "--out", filepath.Join(s.dir, gossipKey))
	}
	if err == nil {
		err = s.found()
	}
	return s, err
}

func (s *secrets) penstock(words ...string) error { return command(s.binary, words...) }

// found makes another authority.
func (s *secrets) found() error {
	s.authorities++
	return s.penstock("certs", "init", "--dir", s.authority())
}

func (s *secrets) authority() string {
	return filepath.Join(s.dir, fmt.Sprintf("authority-%d", s.authorities))
}

// of is a file of a node.
func (s *secrets) of(n *node, file string) string { return filepath.Join(s.dir, n.name, file) }

// flags are those of a node.
func (s *secrets) flags(n *node) []string {
	return []string{
		"--gossip-key-file", s.of(n, gossipKey), "--peer-tls-ca", s.of(n, "ca.crt"),
		"--peer-tls-cert", s.of(n, "node.crt"), "--peer-tls-key", s.of(n, "node.key"),
	}
}

// equip gives a node that starts all that it needs.
func (s *secrets) equip(n *node, at string) error {
	if err := os.MkdirAll(s.of(n, ""), 0o700); err != nil {
		return err
	}
	return errors.Join(
		s.give(n, filepath.Join(s.dir, gossipKey), gossipKey),
		s.give(n, filepath.Join(s.authority(), "ca.crt"), "ca.crt"),
		s.issue(n, at),
	)
}

// issue gives a node a new certificate of the present authority.
func (s *secrets) issue(n *node, at string) error {
	dir := s.authority()
	role := "member"
	if n.agent {
		role = "agent"
	}
	if err := s.penstock("certs", "add", n.name, "--role", role, "--host", at, "--dir", dir,
		"--force"); err != nil {
		return err
	}
	return errors.Join(
		s.give(n, filepath.Join(dir, n.name+".key"), "node.key"),
		s.give(n, filepath.Join(dir, n.name+".crt"), "node.crt"),
	)
}

// give puts copies of files, one after the other, in the place of a node's file, as a whole.
func (s *secrets) give(n *node, file, as string, more ...string) error {
	var text []byte
	for _, name := range append([]string{file}, more...) {
		part, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		text = append(text, part...)
	}
	if err := os.WriteFile(s.of(n, as+".new"), text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.of(n, as+".new"), s.of(n, as))
}

// steps takes each step with all nodes that run, one after the other, and waits until their files
// are read again.
func (r *run) steps(f *judge.Fault, steps ...func(*node) error) error {
	for i, step := range steps {
		for _, n := range r.cluster.asked(up) {
			if i == 0 {
				f.Nodes = append(f.Nodes, n.name)
			}
			if err := step(n); err != nil {
				return err
			}
		}
		time.Sleep(1500 * time.Millisecond)
	}
	return nil
}

// rotateKeys changes the gossip key while the nodes run.
func (r *run) rotateKeys(f *judge.Fault) error {
	s := r.cluster.secrets
	file := filepath.Join(s.dir, gossipKey)
	for _, step := range []string{"add", "use", "remove"} {
		if err := s.penstock("keygen", "--rotate", step, "--out", file); err != nil {
			return err
		}
		f.Nodes = nil
		if err := r.steps(f, func(n *node) error {
			return s.give(n, file,
				gossipKey)
		}); err != nil {
			return err
		}
	}
	return nil
}

// rotateCertificates changes the authority of the nodes, and with it all certificates.
func (r *run) rotateCertificates(f *judge.Fault) error {
	s := r.cluster.secrets
	before := filepath.Join(s.authority(), "ca.crt")
	if err := s.found(); err != nil {
		return err
	}
	after := filepath.Join(s.authority(), "ca.crt")
	return r.steps(f,
		func(n *node) error { return s.give(n, before, "ca.crt", after) },
		func(n *node) error { return s.issue(n, r.cluster.net.address(n.index)) },
		func(n *node) error { return s.give(n, after, "ca.crt") },
	)
}
