package rpc

import (
	"context"
	"strings"
	"testing"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

func TestHTTPMetricsOfPeers(t *testing.T) {
	s := newStations(t, 2, five)
	key := rpctest.OwnKey(s[1].node, 7200)
	for range 3 {
		if _, err := s[0].client.Check(context.Background(),
			&penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("five", key,
				1)}}); err != nil {
			t.Fatal(err)
		}
	}
	metrics := door.NewMetrics(s[0].node)
	s[0].peers.ShowIn(metrics)
	_, body := rpctest.Page(web.NewAdmin(web.Config{Node: s[0].node, Metrics: metrics}), "GET",
		"/metrics", "")
	for _, want := range []string{
		"penstock_peer_asks_total ", "penstock_peer_streams_total 1\n",
		"penstock_forwarded_total 3\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}
