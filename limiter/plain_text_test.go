package limiter

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
)

// allTexts are the texts of at most n of the letters.
func allTexts(letters string, n int) []string {
	texts := []string{""}
	for at := 0; n > 0; n-- {
		end := len(texts)
		for ; at < end; at++ {
			for _, c := range letters {
				texts = append(texts, texts[at]+string(c))
			}
		}
	}
	return texts
}

// letters are the letters of a glob: what stands behind a backslash is itself, and a star that is
// one is 0. It reports false if the glob is none.
func letters(glob string) (all string, good bool) {
	for i := 0; i < len(glob); i++ {
		switch {
		case glob[i] == '*':
			all += "\x00"
			continue
		case glob[i] == '\\':
			if i++; i == len(glob) || glob[i] != '*' && glob[i] != '\\' {
				return "", false
			}
		}
		all += glob[i : i+1]
	}
	return all, true
}

// means reports whether a text is one of those that a glob of such letters means.
func means(letters, text string) bool {
	switch {
	case letters == "":
		return text == ""
	case letters[0] == 0:
		return means(letters[1:], text) || text != "" && means(letters, text[1:])
	}
	return text != "" && text[0] == letters[0] && means(letters[1:], text[1:])
}

// Promise: a star of a pattern stands for any text. A pattern covers another one that is the same,
// or that begins as it does, if it ends with its first star; and if so, it matches all that the
// other one does.
func TestGlobsInPlainWords(t *testing.T) {
	texts := allTexts(`ab*\`, 4)
	var good []string
	for _, text := range texts {
		all, ok := letters(text)
		p, err := ParsePattern(text)
		if (err == nil) != (ok && text != "") {
			t.Fatalf("%q: %v", text, err)
		}
		if err != nil {
			continue
		}
		good = append(good, text)
		for _, key := range texts {
			if p.Matches(key) != means(all, key) {
				t.Fatalf("%q matches %q: %t", text, key, p.Matches(key))
			}
		}
		first, _, starred := strings.Cut(all, "\x00")
		if head, whole := p.Head(); head != first || whole == starred {
			t.Fatalf("%q begins with %q, %t", text, head, whole)
		}
	}
	stars := regexp.MustCompile("\x00+")
	for _, one := range good {
		p, _ := ParsePattern(one)
		all, _ := letters(one)
		all = stars.ReplaceAllString(all, "\x00")
		for _, two := range good {
			q, _ := ParsePattern(two)
			other, _ := letters(two)
			other = stars.ReplaceAllString(other, "\x00")
			first, _, _ := strings.Cut(other, "\x00")
			head, rest, starred := strings.Cut(all, "\x00")
			want := all == other || starred && rest == "" && strings.HasPrefix(first, head)
			if p.Covers(&q) != want {
				t.Fatalf("%q covers %q: %t", one, two, !want)
			}
		}
	}
}

// addressLike is a text that is nearly an address, or one.
func addressLike(draw *rand.Rand) string {
	text := []byte(oneOf(draw, "10.0.0.1", "255.255.255.255", "::", "::1", "2001:db8::9aF0",
		"::ffff:10.9.0.1", "fe80::1%eth0", "1:2:3:4:5:6:7:8", "AbCdEf::", "9.9.9.9",
		"::%"+strings.Repeat("z", 60+draw.IntN(3))))
	for range draw.IntN(3) {
		i := draw.IntN(len(text))
		switch c := oneOf(draw, []byte(".:%/@0189:;ABFGabfg`x ")...); draw.IntN(3) {
		case 0:
			text[i] = c
		case 1:
			text = append(text[:i:i], append([]byte{c}, text[i:]...)...)
		default:
			text = append(text[:i:i], text[min(i+1, len(text)-1):]...)
		}
	}
	return string(text)
}

// Promise: a pattern that is an address matches the keys that are it, also an IPv4 address in IPv6
// form, whatever their zone; a network matches the addresses in it.
func TestAddressesInPlainWords(t *testing.T) {
	read := func(text string) (netip.Addr, bool) {
		addr, err := netip.ParseAddr(text)
		return addr.Unmap().WithZone(""), err == nil && len(text) <= 64
	}
	networks, matched := 0, 0
	for seed := range uint64(60000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		text := addressLike(draw)
		want, isAddr := read(text)
		addr, ok := addressOf(text)
		if ok != isAddr || ok && addr != want {
			t.Fatalf("%q is the address %v: %t", text, addr, ok)
		}
		if !isAddr || strings.Contains(text, "%") {
			continue
		}
		bits := draw.IntN(1 + want.BitLen())
		key := addressLike(draw)
		network := fmt.Sprintf("%s/%d", text, bits)
		p, err := ParsePattern(network)
		n, _ := netip.ParsePrefix(network)
		if good := n.IsValid() && !n.Addr().Is4In6() && n == n.Masked(); good != (err == nil) {
			t.Fatalf("%s: %v", network, err)
		}
		if err != nil {
			n, _ = want.Prefix(bits)
			p, err = ParsePattern(n.String())
		}
		networks++
		at, keyIsAddr := read(key)
		if err != nil || p.Matches(key) != (keyIsAddr && n.Contains(at)) {
			t.Fatalf("%v matches %q: %t, %v", n, key, p.Matches(key), err)
		}
		if p.Matches(key) {
			matched++
		}
		if keyIsAddr {
			m, _ := at.Prefix(draw.IntN(1 + at.BitLen()))
			q, _ := ParsePattern(m.String())
			start, err := m.Addr().Prefix(n.Bits())
			if inside := err == nil && start == n && m.Bits() >= n.Bits(); p.Covers(&q) != inside {
				t.Fatalf("%v covers %v: %t", n, m, !inside)
			}
		}
		for glob, all := range map[string]bool{
			"*": true, "**": true, "1*": false, "*1": false, "*:*": false, "": false,
		} {
			q, err := ParsePattern(glob)
			if err == nil && (q.Covers(&p) != all || p.Covers(&q)) {
				t.Fatalf("%q covers %v: %t, and is covered: %t", glob, n, !all, p.Covers(&q))
			}
		}
		var wider, any Pattern
		wide := n.Bits() / 2
		if w, err := n.Addr().Prefix(wide); err == nil {
			wider, _ = ParsePattern(w.String())
		}
		if any, _ = ParsePattern("*"); !wider.Covers(&p) || !any.Covers(&p) || p.Covers(&any) ||
			p.Covers(&wider) != (wide == n.Bits()) {
			t.Fatalf("%v: covered by its first %d bits: %t", n, wide, wider.Covers(&p))
		}
	}
	if networks < 1000 || matched < 100 {
		t.Errorf("%d networks, %d keys in them; that proves little", networks, matched)
	}
}

// Promise: a period is numbers with units, and what they add up to, if it is not too long.
func TestPeriodsInPlainWords(t *testing.T) {
	whole := regexp.MustCompile(`^(\d+(ms|s|m|h|d|w))+$`)
	part := regexp.MustCompile(`(\d+)(ms|s|m|h|d|w)`)
	size := map[string]int64{
		"ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9, "w": 7 * 86400e9,
	}
	good := 0
	for seed := range uint64(60000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		text := ""
		for range 1 + draw.IntN(3) {
			text += oneOf(draw, "0", "1", "9", "10", "59", "366", "365", "8784", "99", "9007",
				"31622400", "31622399", "99999999999999999999", "")
			text += oneOf(draw, "ms", "s", "m", "h", "d", "w", "ms", "s", "m", "h", "d", "w", "",
				"x", "/", ":")
		}
		sum := new(big.Int)
		for _, p := range part.FindAllStringSubmatch(text, -1) {
			n, _ := new(big.Int).SetString(p[1], 10)
			sum.Add(sum, n.Mul(n, big.NewInt(size[p[2]])))
		}
		d, err := ParsePer(text)
		if fits := sum.Cmp(big.NewInt(int64(MaxPer))) <= 0; (err == nil) !=
			(whole.MatchString(text) && fits) || err == nil && int64(d) != sum.Int64() {
			t.Fatalf("%q is %v, %v; want %v", text, d, err, sum)
		}
		if err == nil {
			good++
		}
	}
	if good < 5000 {
		t.Errorf("%d are periods; that proves little", good)
	}
	for _, text := range []string{"month", "year"} {
		if _, err := ParsePer(text); err == nil || !strings.Contains(err.Error(), "differ in len") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Promise: a zone is named by words of letters, digits, -, + and _ with slashes between them.
func TestZoneNamesInPlainWords(t *testing.T) {
	word := regexp.MustCompile(`^[-+_0-9A-Za-z]+(/[-+_0-9A-Za-z]+)*$`)
	for _, text := range append(allTexts("-+_09AZaz/.:@[`{ ,", 3), "Local", "UTC",
		strings.Repeat("x", 64), strings.Repeat("x", 65)) {
		want := word.MatchString(text) && len(text) <= 64 && text != "Local"
		if isZoneName(text) != want {
			t.Fatalf("%q is a name: %t", text, !want)
		}
	}
}

// Promise: two limits have one identity if what belongs to it is the same: name and algorithm, of
// windows their length and place, of buckets and parts their sizes.
func TestIdentitiesInPlainWords(t *testing.T) {
	belongs := func(s Spec) string {
		text := fmt.Sprint(s.Name, s.Algorithm)
		switch s.Algorithm {
		case StatedWindow, StatedBucket:
			return text
		case GCRA, LeakyBucket:
			if !s.Nameless {
				return text
			}
		case TokenBucket:
			text += fmt.Sprint(s.Limit, s.Refill, s.ClientTime, s.Sessions)
		case SlidingCounter, Concurrency:
			text += fmt.Sprint(s.Buckets)
		}
		return text + fmt.Sprint(s.Per, s.Anchor, s.Calendar, s.TimeZone)
	}
	same, apart := 0, 0
	for seed := range uint64(40000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		one := drawnFields(draw)
		two := one
		for range draw.IntN(3) {
			other := drawnFields(draw)
			for _, change := range []func(){
				func() { two.Name = oneOf(draw, "l", "m") },
				func() { two.Limit = oneOf[int64](draw, 6, 7) },
				func() { two.Per = oneOf(draw, time.Minute, time.Hour) },
				func() { two.Anchor, two.Refill = other.Anchor, other.Refill },
				func() { two.ClientTime, two.Sessions = other.ClientTime, other.Sessions },
				func() { two.Calendar, two.Per = Days, Days.Per() },
				func() { two.Calendar = 0 },
				func() { two.Override, two.Planned = other.Override, other.Planned },
				func() { two.TimeZone, two.Buckets = other.TimeZone, other.Buckets },
				func() { two.Nameless, two.Algorithm = other.Nameless, other.Algorithm },
			} {
				if draw.IntN(6) == 0 {
					change()
				}
			}
		}
		a, err := New(one)
		b, bad := New(two)
		if err != nil || bad != nil {
			continue
		}
		want := belongs(a.Spec) == belongs(b.Spec)
		if a.sameIdentity(b) != want {
			t.Fatalf("%+v and\n%+v are one: %t", a.Spec, b.Spec, !want)
		}
		if (a.Identity() == b.Identity()) != want {
			t.Fatalf("%+v and\n%+v have one hash: %t", a.Spec, b.Spec, !want)
		}
		// where a table looks for them first
		if near := a.ruleSeed == b.ruleSeed; near != (want && a.Override == b.Override) {
			t.Fatalf("%+v and\n%+v have one place: %t", a.Spec, b.Spec, near)
		}
		if want {
			same++
		} else {
			apart++
		}
	}
	if same < 500 || apart < 500 {
		t.Errorf("%d are one, %d are not; that proves little", same, apart)
	}
}
