package admin

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
)

const HoldsDefault = 100

// OpenHolds are the open holds of a node.
type OpenHolds struct {
	Node  string     `json:"node"`
	Holds []OpenHold `json:"holds"`
	There int        `json:"there"` // also those that are not listed
}

// OpenHold is one of them.
type OpenHold struct {
	Limit  string `json:"name"`
	Key    string `json:"key"` // bytes that are no UTF-8 are written as U+FFFD
	Holder string `json:"holder"`
	Units  int64  `json:"units"`
	LeftMs int64  `json:"left_ms"`
}

// elsewhere says that another node decides for a key.
func elsewhere(node string) error {
	return &door.Fault{
		Code: codes.FailedPrecondition, Status: http.StatusMisdirectedRequest, Field: "key",
		Text: fmt.Sprintf("key: %s decides for it, and keeps its holds; ask there", node),
	}
}

// ListHolds lists the holds that this node keeps, at most count of those that f lets through.
func ListHolds(n *cluster.Node, f limiter.HoldFilter, count int) (out OpenHolds, err error) {
	for _, text := range []struct {
		field, value string
		most         int
	}{
		{"key", f.Key, cluster.MaxKey},
		{"holder", f.Holder, limiter.MaxHolder},
	} {
		if len(text.value) > text.most {
			return out, door.Wrong(text.field, "has %d bytes; at most %d are accepted",
				len(text.value), text.most)
		}
	}
	list, there, other := n.OpenHolds(f, count)
	if other != "" {
		return out, elsewhere(other)
	}
	out = OpenHolds{Node: n.ID(), Holds: make([]OpenHold, len(list)), There: there}
	for i, h := range list {
		out.Holds[i] = OpenHold{h.Limit, h.Key, h.Holder, h.Units, door.Millis(h.Left)}
	}
	return out, nil
}

// Holds lists open holds.
func (a *Service) Holds(_ context.Context,
	in *penstockv1.HoldsRequest,
) (*penstockv1.HoldsResponse, error) {
	count, err := readCount(int64(in.Count), HoldsDefault)
	if err != nil {
		return nil, door.StatusError(err)
	}
	list, err := ListHolds(a.Node,
		limiter.HoldFilter{Limit: in.Limit, Key: string(in.Key), Holder: in.Holder}, count)
	if err != nil {
		return nil, door.StatusError(err)
	}
	out := &penstockv1.HoldsResponse{Node: list.Node, There: int64(list.There)}
	for _, h := range list.Holds {
		out.Holds = append(out.Holds,
			&penstockv1.OpenHold{
				LimitName: h.Limit, Key: []byte(h.Key), Holder: h.Holder, Units: h.Units,
				LeftMs: h.LeftMs,
			})
	}
	return out, nil
}
