package main

import (
	"strings"
	"sync"

	"penstock/rpc"
)

// tlsSeen is what the audit log has of TLS files, by the flag of the certificate. The files of
// nodes are read twice, as those of a door and of a caller, and recorded once.
type tlsSeen struct {
	mu   sync.Mutex // guards last
	last map[string]rpc.TLSSums
}

// recordTLS records that a certificate or authorities were put in force, by serial numbers and
// fingerprints. Of authorities it names those that are gone, and those that are new.
func (f *files) recordTLS(flag, cert, ca string, before, after rpc.TLSSums) {
	f.seen.mu.Lock()
	defer f.seen.mu.Unlock()
	if last, known := f.seen.last[flag]; known {
		before = last
	}
	if f.seen.last == nil {
		f.seen.last = make(map[string]rpc.TLSSums)
	}
	f.seen.last[flag] = after
	load := "load "
	if strings.HasPrefix(flag, "--peer-") {
		load = "load peer "
	}
	f.recordReload(load+"certificate", cert, before.Certificate, after.Certificate)
	f.recordReload(load+"authorities", ca, without(before.Authorities, after.Authorities),
		without(after.Authorities, before.Authorities))
}
