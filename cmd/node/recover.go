package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// recoverVerb tells a node that the voters which it has lost are gone for good. It is the only way
// out of a lost majority that is not its return, and refused while a majority lives.
type recoverVerb struct {
	remote
}

func (v *recoverVerb) Run(sh shell) error {
	err := v.ask(func(ctx context.Context, c *client.Client) error {
		out, err := adminOf(c).Recover(ctx, &penstockv1.RecoverRequest{})
		if err == nil {
			fmt.Fprintf(sh.out,
				"%s goes on without the voters that it has lost; /readyz says when it decides "+
					"again\n", out.Node)
		}
		return err
	})
	if err != nil { // the name of the verb stands before it in any case
		err = errors.New(strings.TrimPrefix(err.Error(), "recover: "))
	}
	return err
}
