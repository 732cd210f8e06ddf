package main

import (
	"crypto/tls"

	"penstock/rpc/door"
)

// newMetrics makes what /metrics shows of this node; clientTLS is what the doors for clients show.
func (r *running) newMetrics(clientTLS *tls.Config) *door.Metrics {
	m := door.NewMetrics(r.node)
	r.metrics = m
	r.peers.ShowIn(m)
	m.SetBuild(version())
	m.Register(r.envoy)
	r.envoy.Measure(m.Checks("envoy"))
	m.SetReloads(r.files.lastReload)
	m.SetFailed(r.roster.countFailed)
	m.SetSaveErrors(func() uint64 {
		if r.data == nil {
			return 0
		}
		return r.data.failed.Load() + r.catalog.SaveErrors()
	})
	m.SetAuditErrors(r.files.audit.Lost)
	m.SetGossipRefused("network", r.refused.Network.Load)
	m.SetGossipRefused("message", r.refused.Message.Load)
	m.SetGossipRefused("room", r.refused.Room.Load)
	for _, o := range r.doors.list {
		m.AddDoor(o.keeper)
		if clientTLS != nil && o.flag != "--peer" {
			m.AddCertificate(o.flag[2:], clientTLS)
		}
	}
	return m
}
