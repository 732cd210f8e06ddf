package sim

import (
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// deniedFaults are of the kind that lets a denial outlive what ended it, or remembers one that
// nobody has promised.
func deniedFaults() []planted {
	return []planted{
		{
			"an owner promises to say when a denial ends, and says nothing",
			[]promise{useful},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				a.From = 0 // it cannot note that the asker is to be told
				answer := d.Deliver(a)
				for i := range a.Items {
					out := &answer.Items[i]
					out.Told = a.Items[i].Tell && out.Status == cluster.StatusDone &&
						!out.Decision.Allowed && out.Decision.RetryAfter > 0 &&
						out.Decision.Hold == limiter.HoldNone
				}
				return answer
			}),
		},
		{
			"a node is told that a denial has ended, and goes on denying",
			[]promise{useful},
			onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
				a.Forget = nil
				return d.Deliver(a)
			}),
		},
		{
			"a refund is answered before nodes that remember a denial have heard of it",
			[]promise{useful},
			func(p *process) {
				p.door = disguise{
					door: p.door,
					deliver: func(d door, a *cluster.Ask) *cluster.Answer {
						answer := d.Deliver(a)
						if p.node.MustNotify(a, answer) {
							late := *answer
							kept := *a
							kept.Items = nil
							for _, it := range a.Items {
								it.Key = strings.Clone(it.Key)
								kept.Items = append(kept.Items, it)
							}
							p.AfterFunc(100*time.Millisecond, func() {
								p.node.Confirm(&kept, &late)
							})
							for i := range a.Items { // nothing that has to be said
								a.Items[i].Op = cluster.OpPeek
							}
						}
						return answer
					},
				}
			},
		},
	}
}
