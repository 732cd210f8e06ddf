// Package native is the gRPC door for clients: penstock.v1, beside Gubernator's service, health and
// reflection. Follow one Check: admit (admit.go) looks at the header, check_call.go reads the
// message by hand into a cluster.Request and asks the node, check_writer.go writes the decisions.
// CheckStream (stream.go) does the same for each of its messages. intake.go bounds the memory of
// calls that are not complete. DESIGN.md says what the door translates, and why it does so in this
// way.
package native
