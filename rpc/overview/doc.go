// Package overview is the whole cluster as the page of one node shows it. A node asks the others in
// JSON (message.go), remembers what they said (overview.go), and adds up their counts and events
// (merge.go). Nothing is sent while no page is open.
package overview
