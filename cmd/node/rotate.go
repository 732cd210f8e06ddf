package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The steps of penstock keygen --rotate. Between two of them the file goes to every node: a node
// that gets a message under a key that it does not have drops the message.
const (
	rotateAdd    = "add"    // draws a key, the last: all nodes learn to decrypt with it
	rotateUse    = "use"    // makes the last key the first: they encrypt with it
	rotateRemove = "remove" // keeps the first key alone
)

// rotated are the keys after a step, from those before. drawn is what add adds.
func rotated(step string, keys [][]byte, drawn []byte) ([][]byte, error) {
	n := len(keys)
	switch {
	case step == rotateAdd:
		return append(slices.Clone(keys), drawn), nil
	case n < 2:
		return nil, fmt.Errorf("--rotate %s: the file has one key; begin with --rotate %s", step,
			rotateAdd)
	case step == rotateUse:
		return append([][]byte{keys[n-1]}, keys[:n-1]...), nil
	case step == rotateRemove:
		return keys[:1], nil
	}
	return nil, fmt.Errorf("--rotate %s: there are %s, %s and %s", step, rotateAdd, rotateUse,
		rotateRemove)
}

// next says what to do after a step.
func next(step, file string) string {
	then := map[string]string{rotateAdd: rotateUse, rotateUse: rotateRemove}[step]
	if then == "" {
		return "Copy it to every node: the keys before decrypt nothing any more."
	}
	return fmt.Sprintf(
		"Copy it to every node. When all have read it: penstock keygen --rotate %s --out %s",
		then, file)
}

// rotate takes a step with the keys in the file, which is replaced as a whole and keeps its mode.
func (v *keygenVerb) rotate(sh shell, drawn []byte) error {
	if v.Out == "" || v.Token != nil {
		return errors.New(
			"--rotate changes the file of gossip keys that --out names, without --token")
	}
	keys, err := readGossipKeys(v.Out)
	if err != nil {
		return err
	}
	if keys, err = rotated(v.Rotate, keys, drawn); err != nil {
		return fmt.Errorf("%s: %w", v.Out, err)
	}
	var text strings.Builder
	for _, key := range keys {
		fmt.Fprintln(&text, base64.StdEncoding.EncodeToString(key))
	}
	if err := replaceFile(v.Out, text.String()); err != nil {
		return err
	}
	fmt.Fprintf(sh.err, "%s has now: %s (the first encrypts). ", v.Out,
		strings.Join(namesOf(keys), ", "))
	fmt.Fprintln(sh.err, next(v.Rotate, v.Out))
	return nil
}
