// Package penstockv1 is generated from penstock.proto, the API for clients.
package penstockv1

//go:generate ../../generate.sh
