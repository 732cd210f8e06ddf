package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"penstock/textfile"
)

// MinToken is the length of the shortest token that is accepted: shorter ones can be guessed.
const MinToken = 16

// fileClient is a client as the file writes it.
//
//	clients:
//	  - name: shop
//	    sha256: 4ba9…                # of its token; or token: the token itself
//	    check: {limits: [login, api-*], keys: [shop/], inline: false}
//	    refund: true
//	  - name: ops
//	    certificate: ops.example.com # an alternative name of its certificate
//	    admin: write                 # which includes read
//	    metrics: true
//
// Two entries may have one name: so a client changes its token without a gap.
type fileClient struct {
	Name        string     `yaml:"name"`
	Token       string     `yaml:"token"`
	SHA256      string     `yaml:"sha256"`
	Certificate string     `yaml:"certificate"`
	Check       *fileCheck `yaml:"check"`
	Refund      bool       `yaml:"refund"`
	Admin       string     `yaml:"admin"`
	Metrics     bool       `yaml:"metrics"`
}

type fileCheck struct {
	Limits []string `yaml:"limits"`
	Keys   []string `yaml:"keys"`
	Inline bool     `yaml:"inline"`
}

// isList recognises the file of several clients, also as JSON, which is YAML. Any other file is one
// token.
var isList = regexp.MustCompile(`(?m)^clients:|\A\s*[{\[]`)

// tokenLike is what could be a token in an error of the YAML library: it repeats names of fields
// and of aliases. The names of fields that there are have fewer characters.
var tokenLike = regexp.MustCompile(fmt.Sprintf(`[^\s"]{%d,}`, MinToken))

// Load reads a file: a list of clients, or a token that may do everything in the first line. A
// file with a token in it must be closed to other users of the machine, and no file may be changed
// by them, unless shared says that this is meant. The group may read it: orchestrators that mount
// secrets for an unprivileged user give them to a group of the container. No error shows anything
// of a token.
func Load(path string, shared bool) (*Set, error) {
	text, err := textfile.Read(path)
	if err != nil {
		return nil, err
	}
	set, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	others := info.Mode().Perm() & 0o006
	if !set.plain {
		others &= 0o002 // hashes may be read
	}
	if others != 0 && !shared {
		return nil, fmt.Errorf("%s: every user of this machine may read or change it (mode %#o); "+
			"chmod 600 it, mount it with such a mode (defaultMode: 0400 in Kubernetes), or "+
			"say --insecure",
			path, info.Mode().Perm())
	}
	return set, nil
}

// Parse reads the text of a file.
func Parse(text []byte) (*Set, error) {
	if !isList.Match(text) {
		token, err := ParseToken(text)
		if err != nil {
			return nil, err
		}
		return Alone(token), nil
	}
	var file struct {
		Clients []fileClient `yaml:"clients"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField())
	if err := d.Decode(&file); err != nil {
		// without the lines around
		return nil, errors.New(tokenLike.ReplaceAllString(
			yaml.FormatError(err, false, false), "…"))
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("has a second document after a line of ---, which nobody would " +
			"read; put all clients in one list")
	}
	if len(file.Clients) == 0 {
		return nil, errors.New("clients: is empty; name a client, or leave the flag out")
	}
	set := &Set{
		tokens: map[uint64]*entry{}, certificates: map[string]*Client{},
		text: sha256.Sum256(text),
	}
	for i := range file.Clients {
		in := &file.Clients[i]
		set.plain = set.plain || in.Token != ""
		if err := set.add(in); err != nil {
			return nil, fmt.Errorf("clients[%d] %.60q: %w", i, in.Name, err)
		}
	}
	return set, nil
}

// ParseToken reads a token: the first line of text, and the only one that is not blank.
func ParseToken(text []byte) (string, error) {
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	if len(bytes.TrimSpace(rest)) > 0 {
		return "", errors.New("a file of one token has one line; for several tokens, write a " +
			"list of clients")
	}
	token := strings.TrimSpace(string(line))
	return token, checkToken(token)
}

func checkToken(token string) error {
	if token == "" {
		return errors.New("the first line is empty, and no line begins with clients:; write a " +
			"token, or a list of clients")
	}
	if len(token) < MinToken || strings.ContainsFunc(token, func(r rune) bool {
		return r <= ' ' || r > '~'
	}) {
		return fmt.Errorf("a token has at least %d printable ASCII characters; draw one with "+
			"penstock keygen --token NAME", MinToken)
	}
	return nil
}

// add adds a client to a set that is being made.
func (s *Set) add(in *fileClient) error {
	c, err := in.client()
	if err != nil {
		return err
	}
	given := 0
	for _, text := range []string{in.Token, in.SHA256, in.Certificate} {
		if text != "" {
			given++
		}
	}
	if given != 1 {
		return errors.New("give one of token, sha256 and certificate")
	}
	if in.Certificate != "" {
		if s.certificates[in.Certificate] != nil {
			return fmt.Errorf("certificate: %.100q is another client's already", in.Certificate)
		}
		s.certificates[in.Certificate] = c
		return nil
	}
	hash, err := in.hash()
	if err != nil {
		return err
	}
	if s.tokens[short(hash)] != nil {
		return errors.New("its token is another client's already; draw another")
	}
	s.tokens[short(hash)] = &entry{hash, c}
	return nil
}

func (in *fileClient) hash() (hash [sha256.Size]byte, err error) {
	if in.Token != "" {
		return sha256.Sum256([]byte(in.Token)), checkToken(in.Token)
	}
	b, err := hex.DecodeString(in.SHA256)
	if err != nil || len(b) != sha256.Size {
		return hash, fmt.Errorf("sha256: has %d characters; the SHA-256 of a token is %d "+
			"hexadecimal digits (penstock keygen --token NAME)",
			len(in.SHA256), hex.EncodedLen(sha256.Size))
	}
	return [sha256.Size]byte(b), nil
}

func (in *fileClient) client() (*Client, error) {
	c := &Client{Name: in.Name}
	if in.Name == "" || len(in.Name) > 128 || strings.ContainsFunc(in.Name, func(r rune) bool {
		return r <= ' ' || r > '~'
	}) {
		return nil, errors.New("name: give 1 to 128 printable ASCII characters without blanks")
	}
	switch in.Admin {
	case "":
	case "read":
		c.rights |= Read
	case "write":
		c.rights |= Read | Write
	default:
		return nil, fmt.Errorf("admin: %.10q is neither read nor write", in.Admin) // no token
	}
	if in.Metrics {
		c.rights |= Metrics
	}
	if in.Check == nil {
		if in.Refund {
			return nil, errors.New("refund: is for limits that the client may check; " +
				"give check as well")
		}
		if c.rights == 0 {
			return nil, errors.New("has no rights; give check, admin or metrics")
		}
		return c, nil
	}
	c.rights |= Check
	if in.Refund {
		c.rights |= Refund
	}
	if err := in.Check.check(); err != nil {
		return nil, err
	}
	c.inline, c.limits, c.keys = in.Check.Inline, in.Check.Limits, in.Check.Keys
	return c, nil
}

// check says what is wrong with what a client may check.
func (in *fileCheck) check() error {
	if len(in.Limits) == 0 && !in.Inline {
		return errors.New(`check: names no limit; give limits: ["*"] for all, or inline: true`)
	}
	for _, name := range in.Limits {
		if name == "" || strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			return fmt.Errorf("check.limits: %.100q is not a name; a name may have * at its end, "+
				"and nowhere else", name)
		}
	}
	if slices.Contains(in.Keys, "") {
		return errors.New("check.keys: an empty prefix is that of all keys; leave keys out")
	}
	return nil
}
