package rpc

import (
	"penstock/cluster"
	"penstock/rpc/catalog"
)

// orAlone is given, or the catalog of a node that no other node hears of.
func orAlone(given *catalog.Catalog, n *cluster.Node) *catalog.Catalog {
	if given != nil {
		return given
	}
	alone, err := catalog.New(catalog.Config{Node: n})
	if err != nil {
		panic(err) // there is no file
	}
	return alone
}
