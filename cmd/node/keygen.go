package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"

	"penstock/rpc/access"
)

// keygenVerb draws a key for --gossip-key-file, or a token for --auth-token-file.
type keygenVerb struct {
	Token  *string `placeholder:"NAME" help:"Draw a token for the client NAME instead, and print its entry for --auth-token-file, which has only the hash."`
	Rotate string  `enum:",add,use,remove" default:"" placeholder:"STEP" help:"Take a step towards a new gossip key in the file of --out: add, use, remove. After each, copy the file to every node; running nodes read it again."`
	Out    string  `type:"path" placeholder:"FILE" help:"Write the key or token to this new file, readable by its owner alone. Default: print it."`
}

func (v *keygenVerb) Run(sh shell) error {
	key := make([]byte, gossipKeyBytes)
	rand.Read(key) // never fails: it would end the process
	if v.Rotate != "" {
		return v.rotate(sh, key)
	}
	if v.Token != nil {
		return v.token(sh, *v.Token, base64.RawURLEncoding.EncodeToString(key))
	}
	line := base64.StdEncoding.EncodeToString(key) + "\n"
	if v.Out == "" {
		fmt.Fprint(sh.out, line)
		fmt.Fprintln(sh.err,
			"Keep it in a file of mode 600, the same on every node, and start them with "+
				"--gossip-key-file FILE.")
		return nil
	}
	err := v.write(line)
	if err == nil {
		fmt.Fprintf(sh.err,
			"Wrote %s. Copy it to every node, and start them with --gossip-key-file.\n", v.Out)
	}
	return err
}

// plainName is a name that YAML reads as it is.
var plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*$`)

// token writes a token for its client, and an entry for the nodes. What the client needs goes to
// the file or to standard output; the entry goes to standard output if the token does not.
func (v *keygenVerb) token(sh shell, name, token string) error {
	written := name
	if !plainName.MatchString(name) {
		written = strconv.Quote(name) // else YAML could read more than a name in it, or a number
	}
	entry := fmt.Sprintf("  - {name: %s, sha256: %x, check: {limits: [\"*\"]}}\n", written,
		sha256.Sum256([]byte(token)))
	if _, err := access.Parse([]byte("clients:\n" + entry)); err != nil {
		return fmt.Errorf("--token %q: %w", name, err)
	}
	if v.Out == "" {
		fmt.Fprintln(sh.out, token)
		fmt.Fprintf(sh.err,
			"Give the token to the client alone. Its entry below clients: in the nodes' "+
				"--auth-token-file:\n%s", entry)
		return nil
	}
	err := v.write(token + "\n")
	if err == nil {
		fmt.Fprint(sh.out, entry)
		fmt.Fprintf(sh.err,
			"Wrote %s for the client. Put the line below clients: in the nodes' "+
				"--auth-token-file.\n", v.Out)
	}
	return err
}

// write makes the file.
func (v *keygenVerb) write(line string) error {
	file, err := os.OpenFile(v.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line)
	return errors.Join(err, file.Close())
}
