package limiter

// KeepsDenials reports whether a key denied by l can be denied again without asking. Until
// Decision.RetryAfter is over the same cost, or a larger one, is refused, with any charges in
// between, and a refused request changes nothing. Two things end a denial before its time: a refund
// (a negative cost, a reset), and a changed l.
//
// It does not cover a denial with Decision.Hold HoldInTheWay: that ends with any hold. In other
// denials nothing was reserved, and no hold that is opened, settled or released later returns units
// that the state of the key has refused.
func (l *Limit) KeepsDenials() bool {
	switch {
	case l.Consistency == Replicated, l.Unlimited, l.NeverDenies():
		// no other node decides, or none denies
		return false
	case l.CountRejected, l.Drain, l.Strict, l.Sessions: // a refusal has its price
		return false
	case l.ClientTime, l.stated(), l.Algorithm == Concurrency:
		// a request may state the time, or the limit; a permit is returned
		return false
	}
	return true
}
