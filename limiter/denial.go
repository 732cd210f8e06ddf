package limiter

// KeepsDenials reports whether who was denied by l can be denied again without asking: until Decision.RetryAfter is over the same
// cost, or a larger one, is refused, whatever else is charged meanwhile, and a request that is refused changes nothing. Two things
// end a denial before its time: what gives back (a negative cost, a reset), and another l.
//
// It says nothing of a denial whose Decision.Hold is HoldInTheWay: that ends with any hold. Of one without, nothing was set aside,
// and no hold that is opened, settled or released later gives back what the state of the key has refused.
func (l *Limit) KeepsDenials() bool {
	switch {
	case l.Consistency == Replicated, l.Unlimited, l.NeverDenies(): // nobody else decides, or nobody denies
		return false
	case l.CountRejected, l.Drain, l.Strict, l.Sessions: // a refusal has its price
		return false
	case l.ClientTime, l.stated(), l.Algorithm == Concurrency: // a request may say what time it is, or the limit; a permit comes back
		return false
	}
	return true
}
