package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds --name and --cluster: both travel in every gossip packet.
const maxName = 128

// checkNames checks the names that other nodes and their pages show.
func (s *settings) checkNames() error {
	for _, n := range []struct{ flag, text string }{
		{"--name", s.Name}, {"--cluster", s.Cluster},
	} {
		if !utf8.ValidString(n.text) || strings.ContainsFunc(n.text, unicode.IsControl) {
			return fmt.Errorf("%s %q: give UTF-8 without control characters", n.flag, n.text)
		}
	}
	if s.Name == "" || len(s.Name) > maxName || strings.ContainsAny(s.Name, "/ ") {
		return fmt.Errorf("--name %q: give 1 to %d bytes without blanks and slashes", s.Name,
			maxName)
	}
	if s.Cluster == "" || len(s.Cluster) > maxName {
		return fmt.Errorf("--cluster %q: give 1 to %d bytes", s.Cluster, maxName)
	}
	return nil
}
