//go:build !linux

package main

import "time"

// pause sleeps d.
func pause(d time.Duration) { time.Sleep(d) }
