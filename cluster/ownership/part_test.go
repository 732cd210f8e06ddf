package ownership

import "testing"

// Promise: what a partition hears changes it only if it fits: a claim or a copy of an older epoch,
// a gift of another one, and a receipt of another boot change nothing.
func TestPartNext(t *testing.T) {
	const other, third = Boot(2), Boot(3)
	claiming := Part{Kind: Claiming, Epoch: 5, Bound: 5}
	held := Part{Kind: Held, Epoch: 5, Bound: 5}
	giving := Part{Kind: Giving, Epoch: 5, To: other, Bound: 5}
	bound := Part{Kind: Copied, Bound: 5, Copy: Copy{Of: other, Epoch: 5, Whole: true}}
	given := Part{
		Kind: Giving, Epoch: 6, To: other, Bound: 6, Copy: Copy{Of: other, Epoch: 6, Whole: true},
	}
	fresh := Part{Kind: Copied, Bound: 5, Copy: Copy{Of: third, Epoch: 6}}
	for _, row := range []struct {
		what  string
		part  Part
		event PartEvent
		want  Part
	}{
		{"a gift of the epoch", claiming, PartEvent{Kind: PartGift, Epoch: 5, Boot: other}, held},
		{"an older gift", claiming, PartEvent{Kind: PartGift, Epoch: 4, Boot: other}, claiming},
		{
			"a gift of a later epoch", claiming,
			PartEvent{Kind: PartGift, Epoch: 6, Boot: other},
			claiming,
		},
		{
			"a gift of what was not claimed", bound,
			PartEvent{Kind: PartGift, Epoch: 5, Boot: other},
			bound,
		},
		{"a claim", held, PartEvent{Kind: PartClaimed, Epoch: 6, Boot: other}, given},
		{"an older claim", held, PartEvent{Kind: PartClaimed, Epoch: 4, Boot: other}, held},
		{
			"a receipt",
			Part{Kind: Giving, Epoch: 5, To: other},
			PartEvent{Kind: PartTaken, Epoch: 5, Boot: other},
			Part{Kind: Copied, Epoch: 5},
		},
		{
			"a receipt of another boot", giving,
			PartEvent{Kind: PartTaken, Epoch: 5, Boot: third},
			giving,
		},
		{"an older receipt", giving, PartEvent{Kind: PartTaken, Epoch: 4, Boot: other}, giving},
		{"a copy", bound, PartEvent{Kind: PartCopied, Epoch: 6, Boot: third}, fresh},
		{"an older copy", bound, PartEvent{Kind: PartCopied, Epoch: 4, Boot: third}, bound},
		{"a copy of what is held", held, PartEvent{Kind: PartCopied, Epoch: 6, Boot: third}, held},
		{
			"a copy of what is claimed", claiming,
			PartEvent{Kind: PartCopied, Epoch: 6, Boot: third},
			claiming,
		},
		{
			"a copy of what is given", giving,
			PartEvent{Kind: PartCopied, Epoch: 6, Boot: third},
			giving,
		},
		{"all have called it free", claiming, PartEvent{Kind: PartFree}, held},
		{"they have called free what is none", giving, PartEvent{Kind: PartFree}, giving},
	} {
		if got := row.part.Next(row.event, func(rule) bool { return true }); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.what, got, row.want)
		}
	}
}
