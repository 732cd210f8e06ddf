package peer

import "penstock/rpc/door"

// ShowIn shows what the lines to peers count, and how long their requests take.
func (p *Lines) ShowIn(m *door.Metrics) {
	s := &p.stats
	m.Count(
		door.Count{Name: "peer_asks", Help: "Asks written to peers.", Read: s.Asks.Load},
		door.Count{
			Name: "peer_words", Help: "Asks that carried words about ownership, as renewals.",
			Read: s.Words.Load,
		},
		door.Count{
			Name: "peer_moves", Help: "Asks that carried copies, claims, gifts or a sign of life.",
			Read: s.Moves.Load,
		},
		door.Count{Name: "peer_frames", Help: "Frames that carried asks: asks per frame say how " +
			"well they join.", Read: s.Frames.Load},
		door.Count{Name: "peer_streams", Help: "Streams opened to peers.", Read: s.Streams.Load},
		door.Count{Name: "peer_expired", Help: "Asks dropped unsent because their deadline came " +
			"first.", Read: s.Expired.Load},
		door.Count{Name: "peer_overflow", Help: "Asks refused because too much waited for the " +
			"peer.", Read: s.Overflow.Load},
	)
	m.Register(p.seconds)
}
