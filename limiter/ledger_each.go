package limiter

// EachOpen calls fn with each open hold that this book decides on. Nobody opens or settles one
// meanwhile, so fn must be quick, and must not change the hold.
func (b *Ledger) EachOpen(fn func(*Hold)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.holds {
		if h.State == HoldOpen && b.open(h.hash) {
			fn(h)
		}
	}
}
