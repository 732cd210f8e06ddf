package native

import (
	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/door"
	"penstock/rpc/notation"
	"penstock/rpc/wire"
)

// checkWriter writes answers to checks.
type checkWriter struct {
	wire.Writer

	rule     *limiter.Limit // of the decision before, or nil
	owner    string         // of that too
	from, to int            // where in b these two are written
}

// check writes the decisions of c, and their verdict.
func (w *checkWriter) check(c *checkCall) {
	for i := range c.out {
		w.decision(&c.out[i])
	}
	if v := c.verdict; v != nil {
		at := w.Open(2)
		w.Bool(1, v.Allowed)
		w.Texts(2, v.RefusedBy)
		w.Number(3, v.RetryAfterMs)
		w.Texts(4, v.Rules)
		w.Close(at)
	}
}

// decision writes d. Most decisions of a message name the same limit and owner, and have nothing
// more to say than how much is left.
func (w *checkWriter) decision(d *cluster.Decision) {
	at := w.Open(1)
	w.Bool(1, d.Allowed)
	w.Number(2, d.Limit)
	w.Number(3, d.Remaining)
	w.Number(4, door.Millis(d.Retry()))
	w.Number(5, door.Millis(d.ResetAfter))
	w.Number(6, door.Millis(d.Delay))
	if d.Rule != w.rule || d.Owner != w.owner {
		w.rule, w.owner, w.from = d.Rule, d.Owner, len(w.B)
		w.Text(7, d.Rule.Name)
		w.Text(8, d.Owner)
		w.to = len(w.B)
	} else {
		w.B = append(w.B, w.B[w.from:w.to]...)
	}
	w.Number(9, int64(notation.Source(d.Source)))
	if d.Degraded || d.Bound != 0 || d.Shadow {
		w.Bool(10, d.Degraded)
		w.Number(11, d.Bound)
		w.Bool(12, d.Shadow)
	}
	if d.Drained != 0 || d.Session != 0 || d.Restarted || d.Rule.Override != "" {
		w.Number(13, d.Drained)
		w.Number(14, int64(d.Session))
		w.Bool(15, door.Restarted(d))
		w.Text(16, d.Rule.Override)
	}
	if d.Over {
		w.Text(17, d.Tag())
		w.Number(18, int64(d.Tier()))
	}
	if said := d.Said(); said.Status != 0 || said.Body != "" {
		at := w.Open(19)
		w.Number(1, int64(said.Status))
		w.Text(2, said.ContentType)
		w.Text(3, said.Body)
		w.Close(at)
	}
	if w.Close(at); len(w.B)-at > 0x7f { // it has been moved up
		w.rule = nil
	}
}

// readID reads the id of a take that its client has drawn; what it does not read, idOf does.
func readID(b []byte, id *cluster.ID) bool {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch {
		case f.Wire == protowire.Fixed64Type && f.Num == 1:
			id.Origin = f.Value
		case f.Wire == protowire.VarintType && f.Num == 2:
			id.Sequence = f.Value
		default:
			return false
		}
	}
	return f.Err == nil && id.Origin<<1 != 0
}
