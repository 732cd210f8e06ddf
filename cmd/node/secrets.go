package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"penstock/limiter/policy"
	"penstock/rpc/access"
	"penstock/rpc/audit"
)

// gossipKeyBytes is the length of a gossip key: AES-256.
const gossipKeyBytes = 32

// readGossipKeys reads a key file: one key of 32 bytes per line, base64 or hex; empty lines and
// lines that begin with
// # do not count. Errors name file and line and never show a key.
func readGossipKeys(path string) (keys [][]byte, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--gossip-key-file: %w", err)
	}
	return parseGossipKeys(path, text)
}

// parseGossipKeys reads the text of the key file at path.
func parseGossipKeys(path string, text []byte) (keys [][]byte, err error) {
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key := decodeKey(line)
		if len(key) != gossipKeyBytes {
			return nil, fmt.Errorf("--gossip-key-file %s:%d: this is no key of %d bytes in base64 or hex; draw one with penstock keygen",
				path, i+1, gossipKeyBytes)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("--gossip-key-file %s: holds no key; draw one with penstock keygen", path)
	}
	return keys, nil
}

// decodeKey reads hex or one of the spellings of base64; nil if line is neither.
func decodeKey(line string) []byte {
	if len(line) == hex.EncodedLen(gossipKeyBytes) {
		if key, err := hex.DecodeString(line); err == nil {
			return key
		}
	}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if key, err := e.DecodeString(line); err == nil {
			return key
		}
	}
	return nil
}

// openAudit makes the audit log.
func (r *running) openAudit() error {
	if r.settings.AuditLog == "" {
		r.audit = audit.New(nil, r.log)
		return nil
	}
	file, err := os.OpenFile(r.settings.AuditLog, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("--audit-log: %w", err)
	}
	r.auditFile, r.audit = file, audit.New(file, r.log)
	return nil
}

// recordReload records that a file was put in force.
func (r *running) recordReload(action, path string, before, after any) {
	r.audit.Add(audit.Entry{
		Time: time.Now(), Who: "this node", From: "a file", Action: action, Target: path, Before: before, After: after,
	})
}

// readClients reads --auth-token-file and goes on watching it. nil: the node was given none.
func (r *running) readClients() (clients *access.Clients, err error) {
	s := &r.settings
	if s.AuthTokenFile == "" {
		return nil, nil
	}
	var last *access.Set
	r.tokens, err = policy.WatchFile(s.AuthTokenFile, "clients", r.log, func(always bool) (int, bool, error) {
		set, err := access.Load(s.AuthTokenFile, s.Insecure)
		if err == nil && set.Certificates() && s.TLSCA == "" {
			err = fmt.Errorf("%s: names certificates of clients, and --tls-ca, which verifies them, is not given", s.AuthTokenFile)
		}
		if err != nil || !always && last != nil && set.Equal(last) {
			return 0, false, err
		}
		if last = set; clients == nil {
			clients = access.New(set)
		} else {
			clients.Replace(set)
		}
		r.recordReload("load clients", s.AuthTokenFile, nil, set.Len())
		return set.Len(), true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("--auth-token-file: %w", err)
	}
	warnIfShared(r.log, "--auth-token-file", s.AuthTokenFile)
	return clients, nil
}

// readToken reads the bearer token that a client sends.
func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--auth-token-file: %w", err)
	}
	token, err := access.ParseToken(text)
	if err != nil {
		return "", fmt.Errorf("--auth-token-file %s: %w", path, err)
	}
	return token, nil
}

// warnIfShared says loudly that other users of this machine can read a secret. Its group may:
// orchestrators that mount secrets for an unprivileged user give them to a group of the container.
func warnIfShared(log *slog.Logger, flag, path string) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o027 != 0 {
		log.Warn("a secret can be read by other users of this machine; chmod it to 600",
			"flag", flag, "file", path, "mode", info.Mode().Perm().String())
	}
}
