package access

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// Promise: whatever stands in a file of clients, it is a list of which each client has a right and
// a token or a certificate, or one token that is long enough; or the error shows nothing of a
// token. Nobody else gets in.
func FuzzClients(f *testing.F) {
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte("a-token-of-some-length")))
	for _, text := range []string{
		"a-token-of-some-length\n", "short\n", "", "two words of text\n",
		"a-token-of-some-length\nanother-token-of-length\n",
		"clients:\n- {name: a, sha256: " + hash + ", check: {limits: [\"*\"]}}\n",
		"clients:\n- {name: a, token: a-token-of-some-length, admin: write}\n" +
			"- {name: a, sha256: " + hash + ", metrics: true}\n",
		"clients:\n- {name: a, certificate: b.example.com, " +
			"check: {inline: true, keys: [x/]}, refund: true}\n",
		"clients: []\n", "clients:\n- {name: a, rigths: all}\n", "clients: &x [*x]\n",
		"clients:\n- {name: a, sha256: 12, admin: all}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := Parse(text)
		if err != nil {
			if set != nil || err.Error() == "" {
				t.Fatalf("%v, %v", set, err)
			}
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); !strings.Contains(line, ":") &&
					len(line) >= MinToken &&
					strings.Contains(err.Error(), line) {
					t.Fatalf("%q is shown: %v", line, err)
				}
			}
			return
		}
		if set.Len() == 0 {
			t.Fatal("a set without clients is accepted")
		}
		again, err := Parse(text)
		if err != nil || !set.Equal(again) {
			t.Fatalf("the same text is another set: %v", err)
		}
		clients := New(set)
		for _, guess := range []string{"", " ", "*", "Bearer", "nobody-has-this-token-0123456789"} {
			if strings.Contains(string(text), guess) && guess != "" {
				continue
			}
			if clients.Token([]byte(guess)) != nil {
				t.Fatalf("the token %q opens", guess)
			}
		}
	})
}
