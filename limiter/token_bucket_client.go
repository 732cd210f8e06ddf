package limiter

// A token bucket may go by the clocks of its clients (ClientTime), and tell how long it has been asked in vain
// (Sessions). Both are extra words of its state, in this order:
//
//   - The instant of the table at which the bucket was last asked for tokens. Where clients say what time it is, the
//     mark is an instant of theirs, and the table's clock cannot tell whether the bucket is full: their time may stand
//     still, or be years away. So it is forgotten only when nobody has asked for as long as an empty bucket takes to
//     fill. That also frees a bucket which somebody with a clock far ahead has frozen.
//   - The instant at which the session began, which is that of the last admitted request. The bucket is strict: with
//     one token, whoever goes on asking is refused and stays in the session, and the first request after a pause of Per
//     is admitted and begins another. (Smyte's RL.SESSIONIZE.)
func (s *Spec) bucketWords() int {
	n := tokenBucketWords
	if s.ClientTime {
		n++
	}
	if s.Sessions {
		n++
	}
	return n
}

// askedAt is the word of the last request.
const askedAt = tokenBucketWords

func (l *Limit) clientBucket(w []int64, now Instant, r *Request, d *Decision) {
	at, bucket := now, w[:tokenBucketWords]
	if l.ClientTime && r.Timed {
		at = within(r.At)
	}
	begins := zero(bucket)
	l.answer(bucket, at, r, d)
	begins = begins || d.Allowed && r.Cost > 0
	if zero(bucket) { // nothing was charged, or all was given back
		clear(w)
	} else if l.ClientTime && r.Cost != 0 {
		w[askedAt] = int64(now)
	}
	if !l.Sessions {
		return
	}
	session := &w[len(w)-1]
	d.Session = Instant(*session)
	if begins {
		d.Session = at
	}
	if !zero(bucket) {
		*session = int64(d.Session)
	}
}

// freshClientBucket is freshTokenBucket where the mark is an instant of the clients.
func (l *Limit) freshClientBucket(w []int64, now Instant) bool {
	n := max(l.refills(w[0]), l.refills(l.Limit))
	return zero(w[:tokenBucketWords]) || (int64(now)-w[askedAt])/int64(l.Per) >= n
}

// mergeClientBucket keeps the larger of each word. It cannot refill the older one up to now first, which is an instant
// of the table: until the clients' time has gone on as far, the merger is stricter than either.
func (l *Limit) mergeClientBucket(w, other []int64, now Instant) {
	l.settleClientBucket(w, now)
	l.settleClientBucket(other, now)
	keepLarger(w, other)
}

// settleClientBucket drops what is fresh, and puts bad numbers right.
func (l *Limit) settleClientBucket(w []int64, now Instant) {
	w[0] = min(max(w[0], 0), l.Limit+l.MaxDebt)
	for i := 1; i < len(w); i++ {
		w[i] = min(max(w[i], int64(earliest)), int64(latest))
	}
	if l.Anchor == Epoch {
		if w[1] = floorTo(w[1], int64(l.Per)); w[1] < int64(earliest) {
			w[1] += int64(l.Per)
		}
	}
	if l.Anchor == Epoch && w[0] == 0 || l.freshClientBucket(w, now) {
		clear(w)
	}
}
