package miss

import "testing"

func TestAdmits(t *testing.T) {
	if !Admits(1, 1, 5) || Admits(4, 3, 5) {
		t.Error("wrong")
	}
}

func TestTake(t *testing.T) {
	tokens := Tokens{2}
	if !tokens.Take() {
		t.Error("refused")
	}
}

func TestUntil(t *testing.T) {
	if Until(3) != 3 || Same(1) != 1 {
		t.Error("wrong")
	}
}
