package cluster

import (
	"time"

	"penstock/limiter"
)

// tell makes of a refusal, at now, of the key with this hash, what its limit wants the caller to
// hear. This is the one place through which the denials of all doors pass, those from memory
// (local.go, lease.go) included: what is remembered is the true wait, and what is told is spread.
// With dry_run a delay is only marked.
func (d *Decision) tell(now limiter.Instant, hash uint64) {
	switch l := d.Rule; {
	case d.Allowed && l.DryRun && l.Delays():
		d.Delay, d.Shadow = 0, true
	case d.Allowed:
	case !l.DryRun && l.OnDeny.Marks():
		d.Allowed, d.Over = true, true
	case l.NeverDenies():
		d.Allowed, d.Shadow = true, true
	default:
		d.RetryAfter = l.Answers.SpreadRetry(now, hash, d.RetryAfter)
	}
}

// overruled reports whether the limit refuses, and the caller is told yes.
func (d *Decision) overruled() bool { return d.Shadow || d.Over }

// Retry is the wait that the caller hears: none of an answer that admits. RetryAfter is then the
// wait of the refusal that the caller was not told of, if there was one.
func (d *Decision) Retry() time.Duration {
	if d.Allowed {
		return limiter.Never
	}
	return d.RetryAfter
}

// Tag is the mark of an answer that was admitted beyond its limit (on_deny: tag); else empty.
func (d *Decision) Tag() string {
	if !d.Over {
		return ""
	}
	return d.Rule.Answers.Tag
}

// Tier is how far behind others the request stands: 0, or if it was admitted beyond a limit with
// on_deny: deprioritize, that limit's.
func (d *Decision) Tier() int {
	if !d.Over {
		return 0
	}
	return d.Rule.Answers.Tier
}

// Said is what a denial says over HTTP, beyond the door's own words. It is zero of a limit without
// any, and of an answer that is no denial.
func (d *Decision) Said() limiter.Answers {
	if d.Allowed || d.Rule == nil {
		return limiter.Answers{}
	}
	return d.Rule.Answers
}

// SaidTogether is what the denial of several decisions says: that of the first one that refuses and
// has something to say.
func SaidTogether(out []Decision) (said limiter.Answers) {
	for i := range out {
		if out[i].along {
			continue
		}
		if said = out[i].Said(); said.Status != 0 || said.Body != "" {
			return said
		}
	}
	return limiter.Answers{}
}
