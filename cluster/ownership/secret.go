package ownership

import (
	"fmt"
	"io"
)

// Secret is mixed into the hashes of keys, so that nobody outside a cluster can choose keys of one
// owner. All members know it from their configuration; nothing here depends on it. 0 is none.
type Secret uint64

// Format writes no secret, whatever the verb is: no log and no error shows one.
func (s Secret) Format(f fmt.State, _ rune) {
	text := "a secret"
	if s == 0 {
		text = "no secret"
	}
	_, _ = io.WriteString(f, text)
}

// MarshalText does for JSON and for logs what Format does for texts.
func (s Secret) MarshalText() ([]byte, error) { return fmt.Append(nil, s), nil }
