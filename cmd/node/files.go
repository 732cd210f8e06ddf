package main

import (
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"penstock/limiter/policy"
	"penstock/rpc"
	"penstock/rpc/audit"
)

// files are those that a node reads again while it runs, and its audit log, which records it.
type files struct {
	settings *settings
	log      *slog.Logger
	began    time.Time
	audit    *audit.Log

	limits *policy.Watcher // nil without --limits
	envoys *policy.Watcher // nil without --envoy-config
	tokens *policy.Watcher // nil without --auth-token-file
	keys   gossipKeys
	tls    tlsState
	seen   tlsSeen
}

// openAudit makes the audit log.
func (f *files) openAudit() (err error) {
	if f.settings.AuditLog == "" {
		f.audit = audit.New(nil, f.log)
		return nil
	}
	if f.audit, err = audit.Open(f.settings.AuditLog, f.log); err != nil {
		return fmt.Errorf("--audit-log: %w", err)
	}
	return nil
}

// recordReload records that a file was put in force, unless it says the same as before.
func (f *files) recordReload(action, path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	f.audit.Add(audit.Entry{
		Time: time.Now(), Who: "this node", From: "a file", Action: action, Target: path,
		Before: before, After: after,
	})
}

// lookAtRoles reads the clients again after a change of limits: it may have taken a limit away that
// one of them may check, or brought the one for which they were refused.
func (f *files) lookAtRoles() {
	if f.tokens != nil {
		f.tokens.Look()
	}
}

// tlsFiles are files with faults that show in penstock_config_last_reload_successful.
func (f *files) tlsFiles(flag, cert, key, ca string) rpc.TLSFiles {
	told := func(err error) { f.tls.set(flag, err) }
	renewed := func(before, after rpc.TLSSums) {
		// beside: the handshake for which they were read does not wait for a disk
		go f.recordTLS(flag, cert, ca, before, after)
	}
	return rpc.TLSFiles{Cert: cert, Key: key, CA: ca, Reloaded: told, Renewed: renewed}
}

// watchers are those of the files that the node was given.
func (f *files) watchers() (given []*policy.Watcher) {
	for _, w := range []*policy.Watcher{f.limits, f.envoys, f.tokens, f.keys.watcher} {
		if w != nil {
			given = append(given, w)
		}
	}
	return given
}

// lastReload says whether the files of limits, clients, gossip keys and TLS were taken over when
// they were last read, and when some last were.
func (f *files) lastReload() (ok bool, at time.Time) {
	ok, at = f.tls.good(), f.began
	for _, w := range f.watchers() {
		s := w.State()
		if ok = ok && s.OK; s.Last.After(at) {
			at = s.Last
		}
	}
	return ok, at
}

// reload reads the files of limits, clients and gossip keys again, and opens the audit log again,
// as a SIGHUP asks for.
func (f *files) reload() {
	watchers := f.watchers()
	if len(watchers) == 0 && f.settings.AuditLog == "" {
		f.log.Warn("nothing to read again: neither --limits, --envoy-config, --auth-token-file, " +
			"--gossip-key-file nor --audit-log were given")
	}
	if err := f.audit.Reopen(); err != nil {
		f.log.Error("--audit-log cannot be opened again; it goes on in the file from before",
			"err", err)
	}
	for _, w := range watchers {
		_ = w.Reload() // it logs what is wrong, and what is in force stays
	}
}
