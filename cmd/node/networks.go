package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/alecthomas/kong"
)

// networks are networks in CIDR notation, with commas; an address is a network of its own.
type networks []netip.Prefix

// Decode adds the value of a flag, which may be given several times.
func (n *networks) Decode(c *kong.DecodeContext) error {
	var text string
	if err := c.Scan.PopValueInto("networks", &text); err != nil {
		return err
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		network, err := netip.ParsePrefix(name)
		if ip, ipErr := netip.ParseAddr(name); ipErr == nil && ip.Zone() == "" {
			network, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if err != nil {
			return fmt.Errorf("%q is not a network: give an address, or a network as 10.0.0.0/8",
				name)
		}
		*n = append(*n, network)
	}
	return nil
}
