//go:build !unix

package main

// descriptorLimit is not known here.
func descriptorLimit() int { return descriptorsUnknown }
