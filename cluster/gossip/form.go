package gossip

// form checks that the bytes of messages have the form that nodes give them: each is a map of
// numbers, truth values and short texts, in MessagePack. The library takes whatever length a text
// announces at once, up to 4 GiB, and looks into maps within maps as deep as they go.
type form struct {
	left    int    // values and names of the map that are still to come
	skip    uint64 // bytes of the text or number that are still to come
	width   int    // bytes of the length of the text that are still to come
	foreign bool
}

// longestText is how many bytes a text of a message may have. The longest one of nodes is what
// they say of themselves, at most 512 bytes.
const longestText = 4 << 10

// pass reports whether the messages have the form so far, with the bytes b that come next.
func (f *form) pass(b []byte) bool {
	for len(b) > 0 && !f.foreign {
		switch {
		case f.width > 0:
			f.skip = f.skip<<8 | uint64(b[0])
			f.width--
			b = b[1:]
		case f.skip > longestText:
			f.foreign = true
		case f.skip > 0:
			n := min(f.skip, uint64(len(b)))
			f.skip -= n
			b = b[n:]
		case f.left == 0:
			f.left = 2 * int(b[0]&0x0f)
			f.foreign = b[0]&0xf0 != 0x80
			b = b[1:]
		default:
			f.left--
			f.begin(b[0])
			b = b[1:]
		}
	}
	return !f.foreign && (f.width > 0 || f.skip <= longestText)
}

// begin begins a value with its first byte.
func (f *form) begin(first byte) {
	switch {
	case first < 0x80, first >= 0xe0, first == 0xc0, first == 0xc2, first == 0xc3:
		// a small number, none, or a truth value
	case first >= 0xa0 && first < 0xc0:
		f.skip = uint64(first & 0x1f)
	case first >= 0xc4 && first <= 0xc6: // bytes
		f.width = 1 << (first - 0xc4)
	case first >= 0xd9 && first <= 0xdb: // text
		f.width = 1 << (first - 0xd9)
	case first >= 0xcc && first <= 0xcf, first >= 0xd0 && first <= 0xd3: // numbers
		f.skip = 1 << (first & 3)
	default:
		f.foreign = true
	}
}
