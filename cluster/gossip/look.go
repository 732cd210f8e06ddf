package gossip

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// Kinds of messages of the library.
const (
	stateKind  = 6
	manyKind   = 7
	userKind   = 8
	packedKind = 9
	sealedKind = 10 // encrypted: in streams only, since in a packet there is no kind before it
	summedKind = 12
	labelKind  = 244
)

// look charges the stream with what its first message announces.
func (s *stream) look() error {
	head, err := s.in.Peek(1)
	at := 0
	if err == nil && head[0] == labelKind {
		if head, err = s.in.Peek(2); err == nil {
			at = 2 + int(head[1])
			head, err = s.in.Peek(at + 1)
		}
	}
	switch {
	case err != nil:
		return err
	case head[at] != sealedKind:
		s.form, s.kindsTo = new(form), at+1
		err = s.charge(s.in, at)
	case s.door.keys != nil:
		err = s.lookInto(at)
	}
	if errors.Is(err, errForeign) {
		s.door.refused.Message.Add(1)
	}
	return err
}

// lookInto looks into the encrypted message that begins at this byte. All of it is read, as the
// library does it before it knows what the message is. One that no key opens is passed on: the
// library says so to the sender.
func (s *stream) lookInto(at int) error {
	head, err := s.in.Peek(at + 5)
	if err != nil {
		return err
	}
	length := int64(binary.BigEndian.Uint32(head[at+1:]))
	if length > s.door.room.free() {
		s.door.refused.Room.Add(1)
		return errNoRoom
	}
	head = slices.Clone(head[at:])
	var all bytes.Buffer
	if _, err = io.CopyN(&all, paid{s}, int64(at)+5+length); err != nil {
		return err
	}
	s.ahead = all.Bytes()
	plain, ok := s.door.opened(s.ahead[at+5:], append(head, s.door.label...))
	switch {
	case !ok:
		return nil
	case len(plain) == 0 || !new(form).pass(plain[1:]):
		return errForeign // the library would end with a panic, or take too much
	}
	return s.charge(bufio.NewReaderSize(bytes.NewReader(plain), longestHead), 0)
}

// paid are the bytes of a stream, which is charged with them.
type paid struct{ s *stream }

func (p paid) Read(b []byte) (int, error) { return p.s.readPaid(b) }

// charge charges the stream with what the message announces that begins at this byte of in.
func (s *stream) charge(in *bufio.Reader, at int) error {
	head, err := in.Peek(at + 1)
	switch {
	case err != nil:
		return err
	case head[at] == packedKind || head[at] == userKind:
		return errForeign
	case head[at] != stateKind:
		return nil
	}
	n, err := announced(in, at+1)
	if err != nil {
		return err
	}
	return s.take(n)
}

// stateFields are the head of a state, as the library writes it: a value follows each.
var stateFields = [...]string{"\x83\xa4Join", "\xa5Nodes", "\xacUserStateLen"}

// announced is how much memory the head of a state asks for, which begins at this byte of in.
func announced(in *bufio.Reader, at int) (int64, error) {
	var values [len(stateFields)]int64
	for i, field := range stateFields {
		head, err := in.Peek(at + len(field) + 1)
		if err != nil {
			return 0, err
		}
		first := head[len(head)-1]
		width := widthOf(first)
		if string(head[at:len(head)-1]) != field || width < 0 {
			return 0, errForeign
		}
		if at = len(head) + width; width == 0 {
			values[i] = int64(first)
			continue
		}
		if head, err = in.Peek(at); err != nil {
			return 0, err
		}
		padded := append(make([]byte, 8-width), head[at-width:]...)
		values[i] = int64(min(binary.BigEndian.Uint64(padded), 1<<32))
	}
	if values[2] != 0 {
		return 0, errForeign
	}
	return values[1] * nodeCost, nil
}

// widthOf is how many bytes a number or a truth value of MessagePack has behind its first one; -1:
// it is neither.
func widthOf(first byte) int {
	switch {
	case first < 0x80, first == 0xc2, first == 0xc3:
		return 0
	case first >= 0xcc && first <= 0xcf: // uint8 to uint64
		return 1 << (first - 0xcc)
	case first >= 0xd0 && first <= 0xd3: // int8 to int64
		return 1 << (first - 0xd0)
	}
	return -1
}

// foreign reports whether a packet is one that no node sends: the library would unpack something
// of it, take more memory for it than it has, or end with a panic.
func (d *door) foreign(b []byte) bool {
	if len(b) > 1 && b[0] == labelKind {
		b = b[min(len(b), 2+int(b[1])):]
	}
	if d.keys != nil {
		if len(b) > 0 && b[0] != sealVersion {
			return true
		}
		plain, ok := d.opened(b, []byte(d.label))
		if !ok {
			return false // the library drops it, and says so
		}
		b = plain
	}
	if len(b) >= 5 && b[0] == summedKind {
		b = b[5:]
	}
	return foreignMessage(b)
}

// sealVersion begins what nodes encrypt. The library also reads an older version, and ends with a
// panic if the padding that it has is wrong.
const sealVersion = 1

// opened is what an encrypted message says, of which context was authenticated with it. false: no
// key opens it.
func (d *door) opened(sealed, context []byte) (plain []byte, ok bool) {
	const nonce = 12
	if len(sealed) < 1+nonce {
		return nil, false
	}
	for _, key := range d.keys.GetKeys() {
		block, err := aes.NewCipher(key)
		if err != nil {
			continue
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			continue
		}
		if plain, err = gcm.Open(nil, sealed[1:1+nonce], sealed[1+nonce:], context); err == nil {
			return plain, true
		}
	}
	return nil, false
}

// foreignMessage reports whether no node sends such a message, or one of the messages in it.
func foreignMessage(b []byte) bool {
	switch {
	case len(b) == 0:
		return false
	case b[0] != manyKind:
		return b[0] == packedKind || b[0] == userKind || !new(form).pass(b[1:])
	case len(b) < 2:
		return false
	}
	n := int(b[1])
	if len(b) < 2+2*n {
		return false // the library drops it
	}
	lengths, rest := b[2:2+2*n], b[2+2*n:]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		length := int(binary.BigEndian.Uint16(lengths))
		if length > len(rest) {
			return false // the library reads no further
		}
		if foreignMessage(rest[:length]) {
			return true
		}
		rest = rest[length:]
	}
	return false
}
