package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
)

// keygenVerb draws a key for --gossip-key-file.
type keygenVerb struct {
	Out string `type:"path" placeholder:"FILE" help:"Write the key to this new file, readable by its owner alone. Default: print it."`
}

func (v *keygenVerb) Run(sh shell) error {
	key := make([]byte, gossipKeyBytes)
	rand.Read(key) // never fails: it would end the process
	line := base64.StdEncoding.EncodeToString(key) + "\n"
	if v.Out == "" {
		fmt.Fprint(sh.out, line)
		fmt.Fprintln(sh.err, "Keep it in a file of mode 600, the same on every node, and start them with --gossip-key-file FILE.")
		return nil
	}
	file, err := os.OpenFile(v.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line)
	if e := file.Close(); err == nil {
		err = e
	}
	if err == nil {
		fmt.Fprintf(sh.err, "Wrote %s. Copy it to every node, and start them with --gossip-key-file.\n", v.Out)
	}
	return err
}
