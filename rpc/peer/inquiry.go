package peer

import (
	"context"

	"penstock/cluster"
)

// Messages with which the page of a node asks other nodes travel beside the stream of a line, as
// those about the log of limits do.
const (
	inquiryService = "penstock.peer.v1.Inquiries"
	inquiryMethod  = "/" + inquiryService + "/Ask"
)

// Inquiries answers what the page of another node asks. agent says that the other node is an agent.
type Inquiries interface {
	Answer(ctx context.Context, question []byte, agent bool) ([]byte, error)
}

// Inquire carries a question of this node's page to m, and its answer back.
func (p *Lines) Inquire(ctx context.Context, m cluster.Member, question []byte) ([]byte, error) {
	return p.invoke(ctx, m, inquiryMethod, question)
}
