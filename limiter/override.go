package limiter

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// An Override makes an exception from a limit for the keys that match its pattern. The first
// matching override counts, in the order of the file; a key that matches none has the limit as it
// is.
//
// The limit of such a key differs in the fields of the override, and in the defaults that follow
// from them (a burst, a refill); all other fields are the limit's. Counters stay: if a key's
// override comes, goes or changes, the key keeps its consumption, as with a limit that is changed
// in place. So no more is minted than the difference. (A token_bucket is the exception, as always:
// its limit and refill are part of its identity.)
//
// The node that is asked finds a key's override, from its own Limits, and the resulting limit
// travels with the request. An owner without a limit of that name decides by it, and need not know
// the patterns; an owner that has one decides by its own.
type Override struct {
	// Key is a pattern of 1 to 256 bytes of UTF-8 without control characters:
	//
	//	plan:pro/*        * stands for any bytes, also for none and for a slash; \* is a star,
	//	                  \\ a backslash
	//	10.0.0.0/8        a network, IPv4 or IPv6: the keys that are an address in it, however
	//	                  that is written
	//	2001:db8::1       an address: the keys that are the same one
	Key string
	// Plan is the name of a plan, 1 … MaxPlan bytes, in place of Key: requests that name it are
	// under the override, whatever their key (see Limit.Under)
	Plan  string
	Limit int64 // as Spec.Limit; 0: the limit's
	// as Spec.Burst; 0: the limit's, if that was given, else what follows from Limit
	Burst     int64
	Refill    int64 // as Spec.Refill; 0: the same
	Unlimited bool  // the keys are always admitted, and nothing is counted; it stands alone
}

// MaxOverrides bounds the overrides of one limit, MaxPattern the bytes of a pattern.
const (
	MaxOverrides = 256
	MaxPattern   = 256
)

// override is an Override with its pattern worked out, and the limit of its keys.
type override struct {
	Override
	pattern pattern
	limit   *Limit
}

// For is the limit of a key: l itself, or what an override makes of it.
func (l *Limit) For(key string) *Limit {
	if l.overrides == nil {
		return l
	}
	if o := overridden(l, "", key); o != nil {
		return o
	}
	return l
}

// overridden is the limit of the first override for the key or the plan, if there is one. A plan
// that l does not have is under none.
func overridden(l *Limit, plan, key string) (found *Limit) {
	var addr netip.Addr
	isAddr := false
	if l.networks {
		addr, isAddr = addressOf(key)
	}
	known := plan == ""
	for i := range l.overrides {
		o := &l.overrides[i]
		named := o.Plan != "" && o.Plan == plan
		known = known || named
		if found == nil && (named || o.Plan == "" && o.pattern.matches(key, addr, isAddr)) {
			found = o.limit
		}
	}
	if !known {
		return nil
	}
	return found
}

// Overrides are those that l was made with.
func (l *Limit) Overrides() []Override {
	list := make([]Override, len(l.overrides))
	for i := range list {
		list[i] = l.overrides[i].Override
	}
	return list
}

// override gives l, made of s, its overrides. The error is a *SpecError; its field is
// "overrides[2].limit" and the like.
func (l *Limit) override(s Spec, list []Override) error {
	if len(list) > MaxOverrides {
		return &SpecError{"overrides", fmt.Sprintf("has %d patterns; 0 to %d are accepted",
			len(list), MaxOverrides)}
	}
	all := make([]override, len(list))
	for i, o := range list {
		field := func(name string) string { return fmt.Sprintf("overrides[%d].%s", i, name) }
		p, bad := o.place(all[:i])
		if bad != nil {
			return &SpecError{field(bad.Field), bad.Reason}
		}
		own, err := o.apply(s, l.Per)
		if err == nil {
			all[i] = override{Override: o, pattern: p}
			l.networks = l.networks || o.Plan == "" && p.pieces == nil
			all[i].limit, err = New(own)
		}
		if err != nil {
			if spec, ok := err.(*SpecError); ok {
				return &SpecError{field(spec.Field), spec.Reason}
			}
			return err
		}
	}
	if len(all) > 0 {
		l.overrides = all
	}
	return nil
}

// apply is s for the keys of o. per is the period of s.
func (o *Override) apply(s Spec, per time.Duration) (Spec, error) {
	if s.Override = o.Key; o.Plan != "" {
		s.Override, s.Planned = planWord+o.Plan, true
	}
	switch {
	case o.Unlimited && (o.Limit != 0 || o.Burst != 0 || o.Refill != 0):
		return s, &SpecError{"unlimited", "stands beside a limit; give one of the two"}
	case o.Unlimited:
		return Spec{
			Name: s.Name, Override: s.Override, Planned: s.Planned, Unlimited: true,
			Algorithm: FixedWindow, Limit: MaxLimit, Per: min(per, MaxPer),
			Parent: s.Parent,
		}, nil
	case o.Limit == 0 && o.Burst == 0 && o.Refill == 0:
		return s, &SpecError{o.named(), fmt.Sprintf("%q is given nothing; write limit, burst, "+
			"refill or unlimited: true", cmp.Or(o.Plan, o.Key))}
	case o.Limit < 0 || o.Limit > MaxLimit:
		return s, &SpecError{"limit", fmt.Sprintf("is %d; 1 to %d are accepted", o.Limit,
			int64(MaxLimit))}
	}
	if o.Limit != 0 {
		s.Limit = o.Limit
	}
	if o.Burst != 0 {
		s.Burst = o.Burst
	}
	if o.Refill != 0 {
		s.Refill = o.Refill
	}
	return s, nil
}

// without is the answer where no entry can be: a key that its limit does not count is admitted,
// with the most of all limits; else there is no room.
func without(l *Limit) Decision {
	if l.Unlimited {
		return Decision{Allowed: true, Limit: MaxLimit, Remaining: MaxLimit, RetryAfter: Never}
	}
	return noRoom(l)
}

func (it Item) uncounted() bool { return it.Limit.Unlimited }

// onlyCounted has decide decide on those of items that are counted; the others stand in nobody's
// way.
func onlyCounted(items []Item, out []Decision, decide func([]Item, []Decision) bool) bool {
	counted := slices.DeleteFunc(slices.Clone(items), Item.uncounted)
	decisions := make([]Decision, len(counted))
	all := decide(counted, decisions)
	for i := range items {
		if items[i].uncounted() {
			out[i] = without(items[i].Limit)
		} else {
			out[i], decisions = decisions[0], decisions[1:]
		}
	}
	return all
}

// pattern is a pattern worked out: a network, or the pieces between the stars of a glob.
type pattern struct {
	network netip.Prefix
	pieces  []string // one: the key itself; more: head, what has to follow in this order, and tail
}

// parsePattern reads a pattern. Its errors say what is wrong and what is accepted.
func parsePattern(text string) (p pattern, err error) {
	switch {
	case text == "":
		return p, fmt.Errorf("is empty; give a pattern, like plan:pro/* or 10.0.0.0/8")
	case len(text) > MaxPattern:
		return p, fmt.Errorf("has %d bytes; 1 to %d are accepted", len(text), MaxPattern)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, isControl):
		return p, fmt.Errorf("%q is not UTF-8 text without control characters", text)
	}
	if addr, isAddr := addressOf(text); isAddr {
		return pattern{network: netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	if slash := strings.LastIndexByte(text, '/'); slash != -1 {
		if addr, isAddr := addressOf(text[:slash]); isAddr {
			return networkOf(text, addr)
		}
	}
	return globOf(text)
}

// A Pattern is what Override.Key says, worked out for texts of any kind.
type Pattern struct{ of pattern }

// ParsePattern reads a pattern: see Override.Key. Its errors say what is wrong and what is
// accepted.
func ParsePattern(text string) (Pattern, error) {
	p, err := parsePattern(text)
	return Pattern{p}, err
}

// Matches reports whether text is one of those that p means.
func (p *Pattern) Matches(text string) bool {
	if p.of.pieces != nil {
		return p.of.matches(text, netip.Addr{}, false)
	}
	addr, isAddr := addressOf(text)
	return p.of.matches(text, addr, isAddr)
}

// Covers reports whether p surely matches all that other does. It knows equal patterns, networks
// within each other, and those that end with their first star.
func (p *Pattern) Covers(other *Pattern) bool { return p.of.covers(&other.of) }

// Head is what all texts that p matches begin with, and whether that is all of them. A network has
// none.
func (p *Pattern) Head() (head string, whole bool) {
	if p.of.pieces == nil {
		return "", false
	}
	return p.of.pieces[0], len(p.of.pieces) == 1
}

// networkOf reads a network with a known address.
func networkOf(text string, addr netip.Addr) (p pattern, err error) {
	n, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is not a network; 0 to %d bits are accepted after the slash", text,
			addr.BitLen())
	case n.Addr().Is4In6():
		return p, fmt.Errorf("%q is an IPv4 network in IPv6 form; write it as IPv4, like "+
			"10.0.0.0/8, which matches both forms", text)
	case n != n.Masked():
		return p, fmt.Errorf("%q has bits behind the first %d; write %v", text, n.Bits(),
			n.Masked())
	}
	return pattern{network: n}, nil
}

// globOf reads a pattern of bytes and stars.
func globOf(text string) (p pattern, err error) {
	var piece []byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '*':
			if len(piece) > 0 || len(p.pieces) == 0 { // ** is *
				p.pieces, piece = append(p.pieces, string(piece)), nil
			}
		case c != '\\':
			piece = append(piece, c)
		case i+1 < len(text) && (text[i+1] == '*' || text[i+1] == '\\'):
			i++
			piece = append(piece, text[i])
		default:
			return p, fmt.Errorf("%q has a backslash before neither * nor another backslash; "+
				"write \\\\ for one", text)
		}
	}
	return pattern{pieces: append(p.pieces, string(piece))}, nil
}

// matches reports whether a key is one of those that p means; addr is the address that it is, if it
// is one.
func (p *pattern) matches(key string, addr netip.Addr, isAddr bool) bool {
	if p.pieces == nil {
		return isAddr && p.network.Contains(addr)
	}
	head, last := p.pieces[0], len(p.pieces)-1
	if last == 0 {
		return key == head
	}
	if !strings.HasPrefix(key, head) {
		return false
	}
	key = key[len(head):]
	for _, piece := range p.pieces[1:last] {
		at := strings.Index(key, piece) // the first place leaves the most for the rest
		if at < 0 {
			return false
		}
		key = key[at+len(piece):]
	}
	return strings.HasSuffix(key, p.pieces[last])
}

// covers reports whether p surely matches every key that other does. It knows equal patterns,
// networks within each other, and globs that end with their first star.
func (p *pattern) covers(other *pattern) bool {
	switch {
	case p.pieces == nil && other.pieces == nil:
		return p.network.Bits() <= other.network.Bits() && p.network.Contains(other.network.Addr())
	case p.pieces == nil:
		return false
	case other.pieces == nil:
		return len(p.pieces) == 2 && p.pieces[0] == "" && p.pieces[1] == ""
	}
	return slices.Equal(p.pieces, other.pieces) ||
		len(p.pieces) == 2 && p.pieces[1] == "" && strings.HasPrefix(other.pieces[0], p.pieces[0])
}

// addressOf is the address that a key is, IPv4 also where it is written as IPv6, and without a
// zone.
func addressOf(key string) (addr netip.Addr, ok bool) {
	if len(key) > maxAddress || !looksLikeAddress(key) {
		return addr, false // before an error would be made of it
	}
	addr, err := netip.ParseAddr(key)
	if err != nil {
		return addr, false
	}
	return addr.Unmap().WithZone(""), true
}

// looksLikeAddress reports whether key has nothing but what an address is made of, up to a zone.
func looksLikeAddress(key string) bool {
	dots, colons := 0, 0
	for i := range len(key) {
		switch c := key[i]; {
		case c == '.':
			dots++
		case c == ':':
			colons++
		case c == '%':
			return colons >= 2
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
		default:
			return false
		}
	}
	return dots == 3 || colons >= 2
}

// maxAddress is more than the longest address has, with a zone.
const maxAddress = 64
