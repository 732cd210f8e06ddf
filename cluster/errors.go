package cluster

import (
	"errors"
	"fmt"
)

// InputError says which field of a request is wrong. Nothing was charged.
type InputError struct {
	Field  string // as the doors name it: "items[3].key"
	Reason string
}

func (e *InputError) Error() string { return e.Field + ": " + e.Reason }

func inputErrorf(item int, field, format string, args ...any) error {
	return &InputError{
		Field:  fmt.Sprintf("items[%d].%s", item, field),
		Reason: fmt.Sprintf(format, args...),
	}
}

// UnknownLimitError says that a request names a limit that this node does not have. Nothing was
// charged.
type UnknownLimitError struct {
	Item int // index of the item
	Name string
	// Early: the node is starting, and has not learned yet which limits were put at others. A
	// client may try again.
	Early bool
}

func (e *UnknownLimitError) Error() string {
	if e.Early {
		return fmt.Sprintf("items[%d].limit: this node is starting, and does not know yet whether "+
			"its cluster has a limit named %.100q; try again", e.Item, e.Name)
	}
	return fmt.Sprintf("items[%d].limit: no limit is named %.100q here; "+
		"load it with --limits or send it inline", e.Item, e.Name)
}

var (
	// ErrExpired: the deadline had passed before anything was done. Nothing was charged.
	ErrExpired = errors.New("deadline passed before the check was decided; nothing was charged")
	// ErrHungUp: this node stood still, and the client has hung up. Nothing was charged.
	ErrHungUp = errors.New(
		"this node stood still, and the client has hung up; nothing was charged")
	// ErrNoView: the node has not joined a cluster yet. Nothing was charged.
	ErrNoView = errors.New("this node has not joined its cluster yet; nothing was charged")
)
