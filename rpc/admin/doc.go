// Package admin is penstock.v1.Admin: what operators ask a node, and what they change. Service has
// the calls. The doors register it, and the HTTP door has a page for each call, made of the same
// functions and rows: KnownMembers, Top, ListHolds, Change. A row says itself as JSON and as a
// message.
package admin
