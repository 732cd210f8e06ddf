package access

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	shopToken = "shop-0123456789abcdef"
	opsToken  = "ops-0123456789abcdef"
)

var shopHash = fmt.Sprintf("%x", sha256.Sum256([]byte(shopToken)))

func parse(t *testing.T, text string) *Set {
	t.Helper()
	set, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// A client may do what its entry says and nothing else: each row is an entry, what it asks for, and
// the right that it lacks.
func TestRights(t *testing.T) {
	for _, row := range []struct {
		rights, ask, lacks string
	}{
		{`check: {limits: [login]}`, "take login k", ""},
		{`check: {limits: [login]}`, "take logins k", `check for the limit "logins"`},
		{`check: {limits: [api-*]}`, "take api-read k", ""},
		{`check: {limits: [api-*]}`, "take ap k", `check for the limit "ap"`},
		{`check: {limits: ["*"]}`, "take any k", ""},
		{`check: {limits: ["*"], keys: [shop/, till/]}`, "take any till/7", ""},
		{
			`check: {limits: ["*"], keys: [shop/]}`, "take any bank/7",
			`check for this key; its keys begin with ["shop/"]`,
		},
		{`check: {limits: ["*"]}`, "take inline k", "check: {inline: true}"},
		{`check: {inline: true}`, "take inline k", ""},
		{`check: {inline: true}`, "take login k", `check for the limit "login"`},
		{`check: {limits: ["*"]}`, "giveback login k", "refund"},
		{`{check: {limits: [login]}, refund: true}`, "giveback login k", ""},
		{
			`{check: {limits: [login]}, refund: true}`, "giveback other k",
			`check for the limit "other"`,
		},
		{`check: {limits: ["*"]}`, "reset login k", "refund"},
		{`{check: {limits: ["*"]}, refund: true}`, "reset login k", ""},
		{`{check: {limits: ["*"]}, refund: true}`, "settle inline k", "check: {inline: true}"},
		{`check: {limits: ["*"]}`, "settle login k", ""},
		{`admin: read`, "peek login k", ""},
		{`admin: read`, "peek inline k", ""},
		{`admin: read`, "take login k", "check"},
		{`admin: read`, "reset login k", "check"},
		{`admin: write`, "reset login k", ""},
		{`admin: write`, "settle inline k", ""},
		{`admin: write`, "take login k", "check"},
		{`admin: write`, "giveback login k", "check"},
		{`admin: read`, "page read", ""},
		{`admin: read`, "page write", "admin: write"},
		{`admin: read`, "page metrics", "metrics"},
		{`admin: write`, "page read", ""},
		{`admin: write`, "page write", ""},
		{`metrics: true`, "page metrics", ""},
		{`metrics: true`, "page read", "admin: read"},
		{`check: {limits: ["*"]}`, "page read", "admin: read"},
	} {
		t.Run(row.rights+" "+row.ask, func(t *testing.T) {
			text := "clients:\n- name: c\n  token: " + shopToken + "\n"
			if inner, many := strings.CutPrefix(row.rights, "{"); many {
				cut := strings.LastIndex(inner, ", ")
				text += "  " + inner[:cut] + "\n  " + strings.TrimSuffix(inner[cut+2:], "}") + "\n"
			} else {
				text += "  " + row.rights + "\n"
			}
			ticket := New(parse(t, text)).Token([]byte(shopToken))
			c, err := ticket.Client()
			if err != nil {
				t.Fatal(err)
			}
			err = try(t, c, strings.Fields(row.ask))
			switch denied, _ := err.(*Denied); {
			case row.lacks == "" && err != nil:
				t.Errorf("%v", err)
			case row.lacks != "" && (denied == nil || denied.Right != row.lacks):
				t.Errorf("error %v, want that it lacks %s", err, row.lacks)
			}
		})
	}
}

func try(t *testing.T, c *Client, words []string) error {
	if words[0] == "page" {
		return c.May(map[string]Right{"read": Read, "write": Write, "metrics": Metrics}[words[1]])
	}
	act, known := map[string]Act{
		"take": Take, "giveback": GiveBack, "peek": Peek, "reset": Reset,
		"settle": Settle,
	}[words[0]]
	if !known {
		t.Fatalf("no act %q", words[0])
	}
	return c.MayAsk(Ask{Act: act, Limit: words[1], Inline: words[1] == "inline", Key: words[2]})
}

// A ticket follows the set in force: new rights hold at once, and a token that is gone is nobody's.
func TestTicketsFollowTheFile(t *testing.T) {
	const entry = "clients:\n- {name: shop, token: " + shopToken + ", check: {limits: [%s]}}\n"
	clients := New(parse(t, fmt.Sprintf(entry, "login")))
	ticket := clients.Token([]byte(shopToken))
	may := func(limit string) error {
		c, err := ticket.Client()
		if err != nil {
			return err
		}
		return c.MayAsk(Ask{Limit: limit, Key: "k"})
	}
	if may("login") != nil || may("pay") == nil {
		t.Fatal("the first file is not in force")
	}
	clients.Replace(parse(t, fmt.Sprintf(entry, "pay")))
	if may("login") == nil || may("pay") != nil {
		t.Error("the second file is not in force for an open connection")
	}
	clients.Replace(Alone(opsToken))
	if err := may("pay"); err != ErrUnknown {
		t.Errorf("a token that was taken away: %v", err)
	}
	if clients.Token([]byte(shopToken)) != nil || clients.Token([]byte(opsToken)) == nil {
		t.Error("the third file is not in force")
	}
}

// A certificate counts only if it is verified, and by its alternative names, not by its subject.
func TestCertificates(t *testing.T) {
	clients := New(parse(t, "clients:\n- {name: shop, certificate: spiffe://example/shop, admin: "+
		"read}\n- {name: ops, certificate: ops.example, metrics: true}\n"))
	id, _ := url.Parse("spiffe://example/shop")
	shop, other := &x509.Certificate{URIs: []*url.URL{id}}, &x509.Certificate{}
	other.Subject.CommonName = "ops.example"
	state := func(c *x509.Certificate, verified bool) *tls.ConnectionState {
		s := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
		if verified {
			s.VerifiedChains = [][]*x509.Certificate{{c}}
		}
		return s
	}
	if ticket := clients.Identify("", state(shop, true)); ticket == nil ||
		ticket.Shown() != "shop (certificate)" {
		t.Errorf("ticket %v", ticket)
	}
	if ticket := clients.Identify("Bearer of nothing", state(shop, true)); ticket == nil {
		t.Error("an unknown token hides the certificate")
	}
	for name, s := range map[string]*tls.ConnectionState{
		"not verified": state(shop, false), "the name is the subject's": state(other, true),
		"no TLS": nil,
	} {
		if clients.Identify("", s) != nil {
			t.Errorf("%s: let in", name)
		}
	}
}

// A broken file is refused with a text that says where and why, and shows nothing of a token.
func TestBrokenFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "the first line is empty",
		"\n\n":                                   "the first line is empty",
		"short":                                  "at least 16 printable ASCII characters",
		"a token with blanks in it":              "at least 16 printable",
		"clients:\n":                             "clients: is empty",
		"clients: []\n":                          "clients: is empty",
		"clients:\n- name: a\n":                  `clients[0] "a": has no rights`,
		"clients:\n- {name: a, metrics: true}\n": "give one of token, sha256 and certificate",
		"clients:\n- {name: a, token: " + shopToken + ", sha256: " + shopHash +
			", metrics: true}\n": "give one of",
		"clients:\n- {name: a, token: tiny, metrics: true}\n": "at least 16",
		"clients:\n- {name: a, sha256: 4ba9, metrics: true}\n": "sha256: has 4 characters; the " +
			"SHA-256 of a token is 64",
		"clients:\n- {token: " + shopToken +
			", metrics: true}\n": "name: give 1 to 128",
		"clients:\n- {name: a, token: " + shopToken +
			", check: {}}\n": "check: names no limit",
		"clients:\n- {name: a, token: " + shopToken +
			", check: {keys: [x]}}\n": "check: names no limit",
		"clients:\n- {name: a, token: " + shopToken +
			", check: {limits: ['a*b']}}\n": `"a*b" is not a name`,
		"clients:\n- {name: a, token: " + shopToken +
			", check: {limits: [a], keys: ['']}}\n": "check.keys: an empty prefix",
		"clients:\n- {name: a, token: " + shopToken +
			", refund: true}\n": "refund: is for limits",
		"clients:\n- {name: a, token: " + shopToken +
			", admin: all}\n": `admin: "all" is neither read nor write`,
		"clients:\n- {name: a, token: " + shopToken +
			", metricks: true}\n": `unknown field "metricks"`,
		"clients:\n- name: a\n  token: *" + shopToken + "\n":              "[3:",
		"clients:\n- name: a\n  " + shopToken + ": true\n":                "[3:",
		"clients:\n- name: a\n  token: " + shopToken + "\n  " + shopToken: "[4:",
		"clients:\n- {name: a, token: [" + shopToken +
			"], metrics: true}\n": "[2:",
		"clients:\n- {name: a, token: " + shopToken + ", metrics: " + shopToken +
			"}\n": "[2:",
		"clients:\n- {name: a, token: " + shopToken + ", metrics: true}\n- {name: b, sha256: " +
			shopHash + ", metrics: true}\n": `clients[1] "b": its token is another client's`,
		"clients:\n- {name: a, certificate: x, metrics: true}\n" +
			"- {name: b, certificate: x, metrics: true}\n": `clients[1] "b": certificate: "x" ` +
			"is another",
		"clients:\n- {name: a, token: " + shopToken +
			", metrics: true}\n---\nclients: []\n": "has a second document",
		`{"clients":[{"name":"a","token":"` + shopToken + `","admin":"` + shopToken +
			`"}]}`: "is neither read nor write",
		`["` + shopToken + `"]`: "[1:",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		} else if strings.Contains(err.Error(), shopToken) {
			t.Errorf("%q: the error shows the token: %v", text, err)
		}
	}
}

// Promise: a list of clients may be JSON, on one line too. It is never taken for a token.
func TestListAsJSON(t *testing.T) {
	text := `{"clients":[{"name":"a","token":"` + shopToken + `","metrics":true}]}`
	set, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if c := set.find(sha256.Sum256([]byte(shopToken))); c == nil || c.Name != "a" {
		t.Errorf("its token is that of %v", c)
	}
	if c := set.find(sha256.Sum256([]byte(text))); c != nil {
		t.Errorf("its text is the token of %q", c.Name)
	}
}

// A file with a token in it must be closed to others. One with hashes may be read, not written.
func TestModesOfFiles(t *testing.T) {
	hashed := "clients:\n- {name: a, sha256: " + shopHash + ", metrics: true}\n"
	listed := "clients:\n- {name: a, token: " + shopToken + ", metrics: true}\n"
	for _, row := range []struct {
		text   string
		mode   os.FileMode
		shared bool
		ok     bool
	}{
		{shopToken + "\n", 0o600, false, true},
		{shopToken + "\n", 0o640, false, true},
		{shopToken + "\n", 0o644, false, false},
		{shopToken + "\n", 0o644, true, true},
		{shopToken + "\n", 0o646, false, false},
		{shopToken + "\n", 0o646, true, true},
		{listed, 0o600, false, true},
		{listed, 0o604, false, false},
		{hashed, 0o644, false, true},
		{hashed, 0o646, false, false},
	} {
		path := filepath.Join(t.TempDir(), "clients")
		if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, row.mode); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path, row.shared)
		if row.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("%q with mode %#o, shared %v: %v", row.text, row.mode, row.shared, err)
		}
	}
}
