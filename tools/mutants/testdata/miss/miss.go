// Package miss has tests that miss one thing each time; mutants_test.go knows which.
package miss

// Admits reports whether a cost fits below a limit. Its test never asks at the limit itself.
func Admits(used, cost, limit int) bool {
	return used+cost <= limit
}

// Tokens is a count that somebody forgot to test the end of.
type Tokens struct{ left int }

// Take takes one if there is one.
func (t *Tokens) Take() bool {
	if t.left == 0 {
		return false
	}
	t.left--
	return true
}

// Until counts up to n. A mutant that forgets to count never ends.
func Until(n int) (i int) {
	for i < n {
		i++
	}
	return i
}

// Same is one for each number. A mutant that adds instead compiles to the same.
func Same(int) int {
	const none = 0
	return 1 + none
}
