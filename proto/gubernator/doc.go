// Package gubernator is generated from gubernator.proto, the API that Gubernator's clients speak.
package gubernator

//go:generate ../generate.sh
