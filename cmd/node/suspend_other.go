//go:build !unix

package main

import "os"

// suspended are the signals that stop a process, and that can be caught.
var suspended []os.Signal

// suspend does nothing: processes are not stopped from a terminal here.
func suspend() {}
