package peer

import "penstock/rpc/door"

// ShowIn shows what the lines to peers count, and how long their requests take.
func (p *Lines) ShowIn(m *door.Metrics) {
	s := &p.stats
	m.Counter("peer_asks", "Asks written to peers.", nil, s.Asks.Load)
	m.Counter("peer_words", "Asks that carried words about ownership, as renewals.", nil,
		s.Words.Load)
	m.Counter("peer_moves", "Asks that carried copies, claims, gifts or a sign of life.", nil,
		s.Moves.Load)
	m.Counter("peer_frames", "Frames that carried asks: asks per frame say how well they join.",
		nil, s.Frames.Load)
	m.Counter("peer_streams", "Streams opened to peers.", nil, s.Streams.Load)
	m.Counter("peer_expired", "Asks dropped unsent because their deadline came first.", nil,
		s.Expired.Load)
	m.Counter("peer_overflow", "Asks refused because too much waited for the peer.", nil,
		s.Overflow.Load)
	m.Register(p.seconds)
}
