// Package web is the HTTP door, and the pages of the admin listener. Follow GET /v1/check: New
// (web.go) names the pages, checkQuery (check.go) reads one item from the query, asks the node, and
// answers by status, headers and JSON. A body of many items goes by body.go, forward-auth by
// auth.go; what proxies say of their clients is in proxies.go. The named limits are in limits.go,
// the pages of one node in pages.go, those of the whole cluster in cluster_pages.go. DESIGN.md says
// what the door translates, and why it does so in this way.
package web
