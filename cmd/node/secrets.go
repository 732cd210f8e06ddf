package main

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"

	"penstock/limiter/policy"
	"penstock/rpc/access"
	"penstock/textfile"
)

// readClients reads --auth-token-file and goes on watching it. nil: the node was given none.
func (f *files) readClients() (clients *access.Clients, err error) {
	s := f.settings
	if s.AuthTokenFile == "" {
		return nil, nil
	}
	var last *access.Set
	plain := false
	f.tokens, err = policy.WatchFile(s.AuthTokenFile, "clients", f.log,
		func(always bool) (int, bool, error) {
			set, err := access.Load(s.AuthTokenFile, s.Insecure)
			if err == nil && set.Certificates() && s.TLSCA == "" {
				err = fmt.Errorf("%s: names certificates of clients, and --tls-ca, which verifies "+
					"them, is not given", s.AuthTokenFile)
			}
			if err == nil {
				err = s.checkRoles(set)
			}
			if err != nil || !always && last != nil && set.Equal(last) {
				return 0, false, err
			}
			var before []string
			if clients == nil {
				clients, plain = access.New(set), set.Plain()
			} else {
				before = last.Lines()
				clients.Replace(set)
			}
			last = set
			f.recordReload("load clients", s.AuthTokenFile, without(before, set.Lines()),
				without(set.Lines(), before))
			return set.Len(), true, nil
		})
	if err != nil {
		return nil, fmt.Errorf("--auth-token-file: %w", err)
	}
	warnIfShared(f.log, "--auth-token-file", s.AuthTokenFile, plain)
	return clients, nil
}

// mostListed bounds the clients that one entry of the audit log has before and after.
const mostListed = 100

// without is what list has and other has not.
func without(list, other []string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(line string) bool {
		_, there := slices.BinarySearch(other, line)
		return there
	})
	if more := len(list) - mostListed; more > 0 {
		list = append(list[:mostListed], fmt.Sprintf("and %d more", more))
	}
	return list
}

// checkRoles is an error if a client may check a limit that no file has: its name is mistyped.
// Where limits come by Admin alone there are no files, and a file that is broken has its own error.
// A pipe is left to its own reader, for it can be read once.
func (s *settings) checkRoles(set *access.Set) error {
	for _, path := range []string{s.Limits, s.EnvoyConfig} {
		if textfile.Again(path) != nil {
			return nil
		}
	}
	has := map[string]bool{}
	if s.Limits != "" {
		limits, err := policy.Load(s.Limits)
		if err != nil {
			return nil
		}
		for name := range limits.Limits {
			has[name] = true
		}
	}
	var envoy *policy.Envoy
	if s.EnvoyConfig != "" {
		var err error
		if envoy, err = policy.LoadEnvoy(s.EnvoyConfig); err != nil {
			return nil
		}
	}
	if s.Limits == "" && envoy == nil {
		return nil
	}
	clients := set.Limits()
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		if !has[name] && (envoy == nil || envoy.Domain(name) == nil) {
			return fmt.Errorf("%s: %q: check.limits: no file of limits has the limit %q; "+
				"write its name as there, or %q if it is to come by Admin", s.AuthTokenFile,
				clients[name], name, name+"*")
		}
	}
	return nil
}

// readToken reads the bearer token that a client sends.
func readToken(path string) (string, error) {
	text, err := textfile.Read(path)
	if err != nil {
		return "", fmt.Errorf("--auth-token-file: %w", err)
	}
	token, err := access.ParseToken(text)
	if err != nil {
		return "", fmt.Errorf("--auth-token-file %s: %w", path, err)
	}
	return token, nil
}

// warnIfShared says loudly that other users of this machine can read a secret, or change a file
// which has none in clear. Its group may read it: orchestrators that mount secrets for an
// unprivileged user give them to a group of the container.
func warnIfShared(log *slog.Logger, flag, path string, secret bool) {
	wrong, text := os.FileMode(0o022), "a file can be changed by other users of this machine"
	if secret {
		wrong, text = 0o027, "a secret can be read by other users of this machine"
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&wrong != 0 {
		log.Warn(text+"; chmod it to 600",
			"flag", flag, "file", path, "mode", info.Mode().Perm().String())
	}
}
