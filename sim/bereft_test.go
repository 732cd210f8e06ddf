package sim

import (
	"slices"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
)

// Promise: owner and heir may be lost together, and then a mark is all that is allowed: by the
// node that decides, of keys that lost all copies, for one window, soon after the fault.
func TestTakeoversWithoutACopyAreHeldToTheirMark(t *testing.T) {
	own := func(d *cluster.Decision) bool { return d.Source == cluster.SourceOwner }
	for name, plant := range map[string]func(*process){
		"a takeover is marked for longer than a window": func(p *process) {
			lacks := make(map[string]bool)
			onCheck(func(_ *process, d door, r *cluster.Request, out []cluster.Decision) error {
				err := d.Check(r, out)
				for i := range out {
					key := r.Items[i].Key
					if d := &out[i]; own(d) && (d.Degraded || lacks[key]) {
						lacks[key], d.Degraded, d.Bound = true, true, d.Rule.Capacity()
					}
				}
				return err
			})(p)
		},
		"keys that have a whole copy are marked as well": onCheck(func(p *process, d door,
			r *cluster.Request, out []cluster.Decision,
		) error {
			err := d.Check(r, out)
			for i := range out {
				if d := &out[i]; own(d) && p.machine.world.now > 36*time.Second &&
					p.machine.world.now < 40*time.Second {
					d.Degraded, d.Bound = true, d.Rule.Capacity()
				}
			}
			return err
		}),
		"a mark says less than may be forgotten": onCheck(func(_ *process, d door,
			r *cluster.Request, out []cluster.Decision,
		) error {
			err := d.Check(r, out)
			for i := range out {
				if d := &out[i]; own(d) && d.Degraded {
					d.Bound = 1
				}
			}
			return err
		}),
		"the survivors wait for five seconds": func(p *process) {
			first := time.Duration(0)
			p.door = disguise{door: p.door, deliver: func(d door, a *cluster.Ask) *cluster.Answer {
				if a.Words != nil {
					a.Words.Said = slices.DeleteFunc(slices.Clone(a.Words.Said),
						func(m ownership.Message) bool {
							_, secedes := m.(ownership.Secede)
							if now := p.machine.world.now; secedes && first == 0 {
								first = now
							}
							return secedes && p.machine.world.now < first+5*time.Second
						})
				}
				return d.Deliver(a)
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := readScenario(t, "testdata/worlds/two-of-four-die.yaml").run(plant)
			if r.Failure == nil || r.Failure.Promise != promiseWords[ready][0] {
				t.Errorf("it is not caught as %q: %+v", promiseWords[ready][0], r.Failure)
			}
		})
	}
}
